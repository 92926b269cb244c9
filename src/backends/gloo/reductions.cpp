#include <utility>

#include "backends/gloo/arithmetic.hpp"
#include "backends/gloo/flat_view.hpp"
#include "backends/gloo/run.hpp"
#include "core/operand_checks.hpp"

// The operations that combine numbers. reduction_plan.hpp says how each dtype and reduction is
// done.
namespace torch::comms {

using namespace gloo;

namespace {

c10d::ReduceOp::RedOpType native_op(RedOpType op) {
  switch (op) {
    case RedOpType::SUM:
      return c10d::ReduceOp::SUM;
    case RedOpType::PRODUCT:
      return c10d::ReduceOp::PRODUCT;
    case RedOpType::MIN:
      return c10d::ReduceOp::MIN;
    case RedOpType::MAX:
      return c10d::ReduceOp::MAX;
    case RedOpType::BAND:
      return c10d::ReduceOp::BAND;
    case RedOpType::BOR:
      return c10d::ReduceOp::BOR;
    case RedOpType::BXOR:
      return c10d::ReduceOp::BXOR;
    default:
      throw_internal("plans combine with the seven above only");
  }
}

// The plan of one call, its factor checked. `count` elements of `dtype` go in on each rank.
ReductionPlan plan_of(const Call& call, const ReduceOp& op, at::ScalarType dtype, int64_t count,
                      Arithmetic arithmetic) {
  return within(call, [&] {
    auto plan = plan_reduction(dtype, op.type(), call.member->size, count, arithmetic);
    if (plan.premultiply) require_valid_factor(*op.factor(), dtype, count);
    return plan;
  });
}

// The tensor as the background holds it: its memory, without its Python object.
at::Tensor memory_of(const at::Tensor& tensor) { return flat_view(tensor, tensor.scalar_type()); }

}  // namespace

WorkPtr TorchCommGloo::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                  const AllReduceOptions& options) {
  const auto now = call(OpName::all_reduce, async_op, options);
  const auto plan = plan_of(now, op, tensor.scalar_type(), tensor.numel(), Arithmetic::kGloo);
  if (tensor.numel() == 0) return run_nothing(now);
  if (plan.gather) return multiply_all(now, tensor, 0, /*everywhere=*/true);
  auto [prepared, native] = within(now, [&] {
    auto buffer = prepare(tensor, plan, op.factor(), /*own_memory=*/false);
    auto native_options = options_of<c10d::AllreduceOptions>(now);
    native_options.reduceOp = native_op(plan.combine);
    Tensors tensors{buffer};
    auto work = enqueue([&] { return group_->native->allreduce(tensors, native_options); });
    return std::pair(std::move(buffer), std::move(work));
  });
  const auto issued = [&native = native] { return native; };
  if (plan.plain()) return run(now, issued, kDone);
  return run(now, issued,
             [prepared = prepared, target = memory_of(tensor), plan, size = now.member->size] {
               settle(prepared, target, plan, size);
             });
}

WorkPtr TorchCommGloo::reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                              const ReduceOptions& options) {
  const auto now = call(OpName::reduce, async_op, options);
  const auto plan = plan_of(now, op, tensor.scalar_type(), tensor.numel(), Arithmetic::kGloo);
  if (tensor.numel() == 0) return run_nothing(now);
  if (plan.gather) return multiply_all(now, tensor, root, /*everywhere=*/false);
  const bool is_root = now.member->rank == root;
  auto [prepared, native] = within(now, [&] {
    // Gloo uses the tensors of the other ranks as scratch memory.
    auto buffer = prepare(tensor, plan, op.factor(), /*own_memory=*/!is_root);
    auto native_options = options_of<c10d::ReduceOptions>(now);
    native_options.reduceOp = native_op(plan.combine);
    native_options.rootRank = root;
    Tensors tensors{buffer};
    auto work = enqueue([&] { return group_->native->reduce(tensors, native_options); });
    return std::pair(std::move(buffer), std::move(work));
  });
  const auto issued = [&native = native] { return native; };
  if (!is_root || plan.plain()) return run(now, issued, kDone);
  return run(now, issued,
             [prepared = prepared, target = memory_of(tensor), plan, size = now.member->size] {
               settle(prepared, target, plan, size);
             });
}

WorkPtr TorchCommGloo::multiply_all(const Call& now, const at::Tensor& tensor, int root,
                                    bool everywhere) {
  const auto plan = plan_reduction(tensor.scalar_type(), RedOpType::PRODUCT, now.member->size,
                                   tensor.numel(), Arithmetic::kOwn);
  const bool receives = everywhere || now.member->rank == root;
  const int size = now.member->size;
  const auto target = within(now, [&] { return memory_of(tensor); });
  const auto rows = scratch(receives ? target.numel() * size : 0, target.scalar_type());
  const auto issue = [&] {
    if (everywhere)
      return all_gather_flat(*group_->native, bytes(rows), bytes(target),
                             options_of<c10d::AllgatherOptions>(now));
    auto native = options_of<c10d::GatherOptions>(now);
    native.rootRank = root;
    Tensors inputs{bytes(target)};
    std::vector<Tensors> outputs;
    if (receives) {
      Tensors slots;
      for (int rank = 0; rank < size; ++rank)
        slots.push_back(bytes(slice(rows, rank * target.numel(), target.numel())));
      outputs.push_back(std::move(slots));
    }
    return enqueue([&] { return group_->native->gather(outputs, inputs, native); });
  };
  if (!receives) return run(now, issue, kDone);
  return run(now, issue,
             [rows, target, plan, size] { combine_rows(rows, false, target, plan, size); });
}

WorkPtr TorchCommGloo::scatter_reduced(const Call& now, const at::Tensor& output,
                                       const Tensors& slots, const ReduceOp& op, bool equal_slots) {
  const auto dtype = output.scalar_type();
  const int size = now.member->size;
  int64_t count = 0;
  for (const auto& slot : slots) count += slot.numel();
  const auto plan = plan_of(now, op, dtype, count, Arithmetic::kOwn);
  if (count == 0) return run_nothing(now);
  // Each rank gets every rank's part of its slot, as it is, and combines them. A factor must come
  // first, so its products travel, in the dtype that they are combined in.
  const bool prepared = plan.premultiply;
  const auto [sent, target] = within(now, [&] {
    auto packed = pack(slots);
    if (prepared)
      packed = bytes(prepare(typed(packed, dtype), plan, op.factor(), /*own_memory=*/true));
    return std::pair(packed, memory_of(output));
  });
  const int64_t width = sent.numel() / count;
  const auto received = scratch(output.numel() * width * size, at::kByte);
  std::vector<int64_t> output_counts, input_counts;
  if (!equal_slots) {
    output_counts.assign(static_cast<size_t>(size), output.numel() * width);
    for (const auto& slot : slots) input_counts.push_back(slot.numel() * width);
  }
  const auto issue = [&] {
    return all_to_all_flat(*group_->native, received, sent, output_counts, input_counts,
                           options_of<c10d::AllToAllOptions>(now));
  };
  if (output.numel() == 0) return run(now, issue, kDone);
  return run(now, issue, [received, target, plan, prepared, size] {
    combine_rows(typed(received, prepared ? plan.compute : plan.view), prepared, target, plan,
                 size);
  });
}

WorkPtr TorchCommGloo::reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                                      bool async_op, const ReduceScatterOptions& options) {
  const auto now = call(OpName::reduce_scatter, async_op, options);
  return scatter_reduced(now, output, input, op, /*equal_slots=*/true);
}

WorkPtr TorchCommGloo::reduce_scatter_v(at::Tensor& output, const Tensors& input,
                                        const ReduceOp& op, bool async_op,
                                        const ReduceScatterOptions& options) {
  const auto now = call(OpName::reduce_scatter_v, async_op, options);
  return scatter_reduced(now, output, input, op, /*equal_slots=*/false);
}

WorkPtr TorchCommGloo::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                             const ReduceOp& op, bool async_op,
                                             const ReduceScatterSingleOptions& options) {
  const auto now = call(OpName::reduce_scatter_single, async_op, options);
  return scatter_reduced(now, output, {input}, op, /*equal_slots=*/true);
}

}  // namespace torch::comms
