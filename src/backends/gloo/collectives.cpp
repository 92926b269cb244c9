#include <cstring>
#include <utility>

#include "backends/gloo/flat_view.hpp"
#include "backends/gloo/run.hpp"

// The operations that move data. All of it travels as bytes, so that every dtype and shape is the
// same.
namespace torch::comms {

using namespace gloo;

namespace {

// Up to here one exchange, which sends the own part to each rank from memory of its own, beats a
// broadcast a rank.
constexpr int64_t kExchangeUpTo = int64_t{256} * 1024;  // bytes of all copies together

int64_t row_bytes(const at::Tensor& tensor) {
  const auto rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  return rows > 0 ? static_cast<int64_t>(tensor.nbytes()) / rows : 0;
}

std::vector<int64_t> in_bytes(const Splits& rows, int64_t bytes_a_row) {
  std::vector<int64_t> counts;
  for (const uint64_t count : rows) counts.push_back(static_cast<int64_t>(count) * bytes_a_row);
  return counts;
}

std::vector<int64_t> sizes_of(const Tensors& tensors) {
  std::vector<int64_t> counts;
  for (const auto& tensor : tensors) counts.push_back(static_cast<int64_t>(tensor.nbytes()));
  return counts;
}

int64_t sum(const std::vector<int64_t>& counts) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  return total;
}

void copy_bytes(const at::Tensor& to, const at::Tensor& from) {
  if (to.numel() > 0 && to.const_data_ptr() != from.const_data_ptr())
    std::memmove(to.mutable_data_ptr(), from.const_data_ptr(), static_cast<size_t>(to.numel()));
}

// Whether `tensor` shares memory with a slot other than `own`.
bool overlap_others(const at::Tensor& tensor, const Tensors& slots, int own) {
  for (size_t i = 0; i < slots.size(); ++i)
    if (static_cast<int>(i) != own && overlap(tensor, slots[i])) return true;
  return false;
}

}  // namespace

WorkPtr TorchCommGloo::run_nothing(const Call& call) {
  return run(call, [] { return std::vector<NativeWorkPtr>(); }, kDone);
}

WorkPtr TorchCommGloo::broadcast(at::Tensor& tensor, int root, bool async_op,
                                 const BroadcastOptions& options) {
  const auto now = call(OpName::broadcast, async_op, options);
  if (tensor.numel() == 0) return run_nothing(now);
  const auto issue = [&] {
    auto native = options_of<c10d::BroadcastOptions>(now);
    native.rootRank = root;
    Tensors tensors{bytes(tensor)};
    return enqueue([&] { return group_->native->broadcast(tensors, native); });
  };
  return run(now, issue, kDone);
}

WorkPtr TorchCommGloo::all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                                  const AllGatherOptions& options) {
  const auto now = call(OpName::all_gather, async_op, options);
  if (input.numel() == 0) return run_nothing(now);
  const auto issue = [&] {
    std::vector<Tensors> outputs{bytes_of_each(output)};
    Tensors inputs{bytes(input)};
    return enqueue([&] {
      return group_->native->allgather(outputs, inputs, options_of<c10d::AllgatherOptions>(now));
    });
  };
  return run(now, issue, kDone);
}

WorkPtr TorchCommGloo::all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                         const AllGatherSingleOptions& options) {
  const auto now = call(OpName::all_gather_single, async_op, options);
  if (input.numel() == 0) return run_nothing(now);
  const auto issue = [&] {
    return all_gather_flat(*group_->native, bytes(output), bytes(input),
                           options_of<c10d::AllgatherOptions>(now));
  };
  return run(now, issue, kDone);
}

WorkPtr TorchCommGloo::all_gather_v(const Tensors& output, const at::Tensor& input, bool async_op,
                                    const AllGatherOptions& options) {
  const auto now = call(OpName::all_gather_v, async_op, options);
  const int64_t total = total_bytes(output);
  if (total == 0) return run_nothing(now);
  // The sizes of the list are the same on all ranks, so all take the same way.
  if (total * now.member->size > kExchangeUpTo) return all_gather_in_parts(now, output, input);
  const Tensors copies(output.size(), input);
  const auto whole = within(now, [&] { return joined(output); });
  const auto packed = within(now, [&] { return pack(copies); });
  const auto received = whole ? *whole : scratch(total, at::kByte);
  const auto issue = [&] {
    return all_to_all_flat(*group_->native, received, packed, sizes_of(output), sizes_of(copies),
                           options_of<c10d::AllToAllOptions>(now));
  };
  if (whole) return run(now, issue, kDone);
  return run(now, issue, [received, slots = within(now, [&] { return bytes_of_each(output); })] {
    unpack(received, slots);
  });
}

WorkPtr TorchCommGloo::all_gather_in_parts(const Call& now, const Tensors& output,
                                           const at::Tensor& input) {
  const auto issue = [&] {
    const auto slots = bytes_of_each(output);
    const auto own = bytes(input);
    copy_bytes(slots[static_cast<size_t>(now.member->rank)], own);
    std::vector<NativeWorkPtr> works;
    for (size_t root = 0; root < slots.size(); ++root) {
      if (slots[root].numel() == 0) continue;
      auto native = options_of<c10d::BroadcastOptions>(now);
      native.rootRank = static_cast<int64_t>(root);
      Tensors tensors{slots[root]};
      works.push_back(enqueue([&] { return group_->native->broadcast(tensors, native); }));
    }
    return works;
  };
  return run(now, issue, kDone);
}

WorkPtr TorchCommGloo::exchange(const Call& now, const at::Tensor& output, const at::Tensor& input,
                                std::vector<int64_t> output_counts,
                                std::vector<int64_t> input_counts) {
  const auto issue = [&] {
    auto from = input;
    if (overlap(output, input)) {
      from = scratch(input.numel(), at::kByte);
      copy_bytes(from, input);
    }
    return all_to_all_flat(*group_->native, output, from, std::move(output_counts),
                           std::move(input_counts), options_of<c10d::AllToAllOptions>(now));
  };
  return run(now, issue, kDone);
}

WorkPtr TorchCommGloo::all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                         const AllToAllSingleOptions& options) {
  const auto now = call(OpName::all_to_all_single, async_op, options);
  if (input.numel() == 0) return run_nothing(now);
  const auto [to, from] = within(now, [&] { return std::pair(bytes(output), bytes(input)); });
  return exchange(now, to, from, {}, {});
}

WorkPtr TorchCommGloo::all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                           const Splits& output_split_sizes,
                                           const Splits& input_split_sizes, bool async_op,
                                           const AllToAllvSingleOptions& options) {
  const auto now = call(OpName::all_to_all_v_single, async_op, options);
  const auto [to, from] = within(now, [&] { return std::pair(bytes(output), bytes(input)); });
  const auto output_counts = in_bytes(output_split_sizes, row_bytes(output));
  const auto input_counts = in_bytes(input_split_sizes, row_bytes(input));
  // Rows after the last split stay as they are.
  return exchange(now, slice(to, 0, sum(output_counts)), slice(from, 0, sum(input_counts)),
                  output_counts, input_counts);
}

WorkPtr TorchCommGloo::all_to_all(const Tensors& output, const Tensors& input, bool async_op,
                                  const AllToAllOptions& options) {
  const auto now = call(OpName::all_to_all, async_op, options);
  const auto slots = within(now, [&] { return bytes_of_each(output); });
  const auto packed = within(now, [&] { return pack(input); });
  auto whole = joined(slots);
  if (whole && overlap(*whole, packed)) whole.reset();
  if (whole) return exchange(now, *whole, packed, sizes_of(slots), sizes_of(input));
  const auto received = scratch(total_bytes(slots), at::kByte);
  const auto issue = [&] {
    return all_to_all_flat(*group_->native, received, packed, sizes_of(slots), sizes_of(input),
                           options_of<c10d::AllToAllOptions>(now));
  };
  return run(now, issue, [received, slots] { unpack(received, slots); });
}

WorkPtr TorchCommGloo::barrier(bool async_op, const BarrierOptions& options) {
  const auto now = call(OpName::barrier, async_op, options);
  const auto issue = [&] {
    return enqueue([&] { return group_->native->barrier(options_of<c10d::BarrierOptions>(now)); });
  };
  return run(now, issue, kDone);
}

WorkPtr TorchCommGloo::scatter(at::Tensor& output, const Tensors& input, int root, bool async_op,
                               const ScatterOptions& options) {
  const auto now = call(OpName::scatter, async_op, options);
  if (output.numel() == 0) return run_nothing(now);
  const auto to = within(now, [&] { return bytes(output); });
  std::vector<Tensors> inputs;
  if (now.member->rank == root) inputs.push_back(within(now, [&] { return bytes_of_each(input); }));
  // Gloo writes the root's output while it sends the other slots.
  const bool staged = !inputs.empty() && overlap_others(to, inputs[0], now.member->rank);
  const auto received = staged ? scratch(to.numel(), at::kByte) : to;
  const auto issue = [&] {
    auto native = options_of<c10d::ScatterOptions>(now);
    native.rootRank = root;
    Tensors outputs{received};
    return enqueue([&] { return group_->native->scatter(outputs, inputs, native); });
  };
  if (!staged) return run(now, issue, kDone);
  return run(now, issue, [received, to] { copy_bytes(to, received); });
}

WorkPtr TorchCommGloo::gather(const Tensors& output, const at::Tensor& input, int root,
                              bool async_op, const GatherOptions& options) {
  return collect(call(OpName::gather, async_op, options), output, input, root);
}

WorkPtr TorchCommGloo::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                     bool async_op, const GatherSingleOptions& options) {
  const auto now = call(OpName::gather_single, async_op, options);
  Tensors slots;
  if (now.member->rank == root) slots = output.view({-1}).chunk(now.member->size);
  return collect(now, slots, input, root);
}

WorkPtr TorchCommGloo::collect(const Call& now, const Tensors& slots, const at::Tensor& input,
                               int root) {
  if (input.numel() == 0) return run_nothing(now);
  const auto issue = [&] {
    auto native = options_of<c10d::GatherOptions>(now);
    native.rootRank = root;
    Tensors inputs{bytes(input)};
    std::vector<Tensors> outputs;
    if (now.member->rank == root) outputs.push_back(bytes_of_each(slots));
    return enqueue([&] { return group_->native->gather(outputs, inputs, native); });
  };
  return run(now, issue, kDone);
}

}  // namespace torch::comms
