#include <utility>

#include "backends/gloo/flat_view.hpp"
#include "backends/gloo/local_reduction.hpp"
#include "backends/gloo/run_collective.hpp"
#include "core/comm/operand_checks.hpp"

// The reductions of the Gloo backend. reduction_plan.hpp describes how each dtype and reduction is
// computed.
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
      throw_internal("a reduction plan has an operation that Gloo does not support");
  }
}

// Returns: the plan of one call with `count` elements of `dtype` on each rank. Also checks the
// factor.
ReductionPlan plan_of(const GlooCall& call, const ReduceOp& op, at::ScalarType dtype, int64_t count,
                      CombineEngine arithmetic) {
  return with_translated_errors(call, [&] {
    auto plan = plan_reduction(dtype, op.type(), call.comm->size, count, arithmetic);
    if (plan.premultiply) require_valid_factor(*op.factor(), dtype, count);
    return plan;
  });
}

// Returns: a tensor on the same memory, without the Python object, for use in the background.
at::Tensor memory_of(const at::Tensor& tensor) { return flat_view(tensor, tensor.scalar_type()); }

}  // namespace

WorkPtr TorchCommGloo::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                  const AllReduceOptions& options) {
  const auto now = begin_call(OpName::all_reduce, async_op, options);
  const auto plan = plan_of(now, op, tensor.scalar_type(), tensor.numel(), CombineEngine::kGloo);
  if (tensor.numel() == 0) return run_empty(now);
  if (plan.gathers_inputs) return multiply_all(now, tensor, 0, /*everywhere=*/true);
  auto [prepared, native] = with_translated_errors(now, [&] {
    auto buffer = prepare(tensor, plan, op.factor(), /*own_memory=*/false);
    auto native_options = options_of<c10d::AllreduceOptions>(now);
    native_options.reduceOp = native_op(plan.combine);
    Tensors tensors{buffer};
    auto work = enqueue([&] { return group_->native->allreduce(tensors, native_options); });
    return std::pair(std::move(buffer), std::move(work));
  });
  const auto issued = [&native = native] { return native; };
  if (plan.is_plain()) return run_collective(now, issued, kNoFinish);
  return run_collective(
      now, issued, [prepared = prepared, target = memory_of(tensor), plan, size = now.comm->size] {
        write_result(prepared, target, plan, size);
      });
}

WorkPtr TorchCommGloo::reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                              const ReduceOptions& options) {
  const auto now = begin_call(OpName::reduce, async_op, options);
  const auto plan = plan_of(now, op, tensor.scalar_type(), tensor.numel(), CombineEngine::kGloo);
  if (tensor.numel() == 0) return run_empty(now);
  if (plan.gathers_inputs) return multiply_all(now, tensor, root, /*everywhere=*/false);
  const bool is_root = now.comm->rank == root;
  auto [prepared, native] = with_translated_errors(now, [&] {
    // Gloo uses the tensors of ranks other than the root as scratch memory.
    auto buffer = prepare(tensor, plan, op.factor(), /*own_memory=*/!is_root);
    auto native_options = options_of<c10d::ReduceOptions>(now);
    native_options.reduceOp = native_op(plan.combine);
    native_options.rootRank = root;
    Tensors tensors{buffer};
    auto work = enqueue([&] { return group_->native->reduce(tensors, native_options); });
    return std::pair(std::move(buffer), std::move(work));
  });
  const auto issued = [&native = native] { return native; };
  if (!is_root || plan.is_plain()) return run_collective(now, issued, kNoFinish);
  return run_collective(
      now, issued, [prepared = prepared, target = memory_of(tensor), plan, size = now.comm->size] {
        write_result(prepared, target, plan, size);
      });
}

WorkPtr TorchCommGloo::multiply_all(const GlooCall& now, const at::Tensor& tensor, int root,
                                    bool everywhere) {
  const auto plan = plan_reduction(tensor.scalar_type(), RedOpType::PRODUCT, now.comm->size,
                                   tensor.numel(), CombineEngine::kLocal);
  const bool receives = everywhere || now.comm->rank == root;
  const int size = now.comm->size;
  const auto target = with_translated_errors(now, [&] { return memory_of(tensor); });
  const auto rows = scratch(receives ? target.numel() * size : 0, target.scalar_type());
  const auto issue = [&] {
    if (everywhere)
      return all_gather_flat(*group_->native, byte_view(rows), byte_view(target),
                             options_of<c10d::AllgatherOptions>(now));
    auto native = options_of<c10d::GatherOptions>(now);
    native.rootRank = root;
    Tensors inputs{byte_view(target)};
    std::vector<Tensors> outputs;
    if (receives) {
      Tensors slots;
      for (int rank = 0; rank < size; ++rank)
        slots.push_back(byte_view(slice(rows, rank * target.numel(), target.numel())));
      outputs.push_back(std::move(slots));
    }
    return enqueue([&] { return group_->native->gather(outputs, inputs, native); });
  };
  if (!receives) return run_collective(now, issue, kNoFinish);
  return run_collective(
      now, issue, [rows, target, plan, size] { combine_rows(rows, false, target, plan, size); });
}

WorkPtr TorchCommGloo::scatter_reduced(const GlooCall& now, const at::Tensor& output,
                                       const Tensors& slots, const ReduceOp& op, bool equal_slots) {
  const auto dtype = output.scalar_type();
  const int size = now.comm->size;
  int64_t count = 0;
  for (const auto& slot : slots) count += slot.numel();
  const auto plan = plan_of(now, op, dtype, count, CombineEngine::kLocal);
  if (count == 0) return run_empty(now);
  // Each rank receives every rank's part of its slot in the original dtype, and combines the parts.
  // A factor must be applied before that, so with PREMUL_SUM the products travel, in the dtype in
  // which they are combined.
  const bool prepared = plan.premultiply;
  const auto [sent, target] = with_translated_errors(now, [&] {
    auto packed = pack(slots);
    if (prepared)
      packed = byte_view(prepare(view_as(packed, dtype), plan, op.factor(), /*own_memory=*/true));
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
  if (output.numel() == 0) return run_collective(now, issue, kNoFinish);
  return run_collective(now, issue, [received, target, plan, prepared, size] {
    combine_rows(view_as(received, prepared ? plan.compute : plan.view), prepared, target, plan,
                 size);
  });
}

WorkPtr TorchCommGloo::reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                                      bool async_op, const ReduceScatterOptions& options) {
  const auto now = begin_call(OpName::reduce_scatter, async_op, options);
  return scatter_reduced(now, output, input, op, /*equal_slots=*/true);
}

WorkPtr TorchCommGloo::reduce_scatter_v(at::Tensor& output, const Tensors& input,
                                        const ReduceOp& op, bool async_op,
                                        const ReduceScatterOptions& options) {
  const auto now = begin_call(OpName::reduce_scatter_v, async_op, options);
  return scatter_reduced(now, output, input, op, /*equal_slots=*/false);
}

WorkPtr TorchCommGloo::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                             const ReduceOp& op, bool async_op,
                                             const ReduceScatterSingleOptions& options) {
  const auto now = begin_call(OpName::reduce_scatter_single, async_op, options);
  return scatter_reduced(now, output, {input}, op, /*equal_slots=*/true);
}

}  // namespace torch::comms
