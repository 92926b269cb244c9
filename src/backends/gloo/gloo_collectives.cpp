#include <cstring>
#include <utility>

#include "backends/gloo/flat_view.hpp"
#include "backends/gloo/run_collective.hpp"

// The collectives of the Gloo backend that only move data. All data travel as bytes, so every dtype
// and shape takes the same path.
namespace torch::comms {

using namespace gloo;

namespace {

// Up to this size, all_gather_v() runs one all-to-all, in which each rank sends a copy of its own
// part to every rank. That is faster than one broadcast per rank.
constexpr int64_t kExchangeUpTo = int64_t{256} * 1024;  // bytes of all copies together

int64_t row_bytes(const at::Tensor& tensor) {
  const auto rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  return rows > 0 ? static_cast<int64_t>(tensor.nbytes()) / rows : 0;
}

std::vector<int64_t> in_bytes(const Splits& rows, int64_t bytes_per_row) {
  std::vector<int64_t> counts;
  for (const uint64_t count : rows) counts.push_back(static_cast<int64_t>(count) * bytes_per_row);
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

// Returns: true if `tensor` shares memory with a slot other than `own`.
bool overlaps_other_slots(const at::Tensor& tensor, const Tensors& slots, int own) {
  for (size_t i = 0; i < slots.size(); ++i)
    if (static_cast<int>(i) != own && overlap(tensor, slots[i])) return true;
  return false;
}

}  // namespace

WorkPtr TorchCommGloo::run_empty(const GlooCall& call) {
  return run_collective(call, [] { return std::vector<NativeWorkPtr>(); }, kNoFinish);
}

WorkPtr TorchCommGloo::broadcast(at::Tensor& tensor, int root, bool async_op,
                                 const BroadcastOptions& options) {
  const auto now = begin_call(OpName::broadcast, async_op, options);
  if (tensor.numel() == 0) return run_empty(now);
  const auto issue = [&] {
    auto native = options_of<c10d::BroadcastOptions>(now);
    native.rootRank = root;
    Tensors tensors{byte_view(tensor)};
    return enqueue([&] { return group_->native->broadcast(tensors, native); });
  };
  return run_collective(now, issue, kNoFinish);
}

WorkPtr TorchCommGloo::all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                                  const AllGatherOptions& options) {
  const auto now = begin_call(OpName::all_gather, async_op, options);
  if (input.numel() == 0) return run_empty(now);
  const auto issue = [&] {
    std::vector<Tensors> outputs{byte_views(output)};
    Tensors inputs{byte_view(input)};
    return enqueue([&] {
      return group_->native->allgather(outputs, inputs, options_of<c10d::AllgatherOptions>(now));
    });
  };
  return run_collective(now, issue, kNoFinish);
}

WorkPtr TorchCommGloo::all_gather_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                         const AllGatherSingleOptions& options) {
  const auto now = begin_call(OpName::all_gather_single, async_op, options);
  if (input.numel() == 0) return run_empty(now);
  const auto issue = [&] {
    return all_gather_flat(*group_->native, byte_view(output), byte_view(input),
                           options_of<c10d::AllgatherOptions>(now));
  };
  return run_collective(now, issue, kNoFinish);
}

WorkPtr TorchCommGloo::all_gather_v(const Tensors& output, const at::Tensor& input, bool async_op,
                                    const AllGatherOptions& options) {
  const auto now = begin_call(OpName::all_gather_v, async_op, options);
  const int64_t total = total_bytes(output);
  if (total == 0) return run_empty(now);
  // The sizes in the list are equal on all ranks, so all ranks take the same path.
  if (total * now.comm->size > kExchangeUpTo) return all_gather_in_parts(now, output, input);
  const Tensors copies(output.size(), input);
  const auto whole = with_translated_errors(now, [&] { return joined_view(output); });
  const auto packed = with_translated_errors(now, [&] { return pack(copies); });
  const auto received = whole ? *whole : scratch(total, at::kByte);
  const auto issue = [&] {
    return all_to_all_flat(*group_->native, received, packed, sizes_of(output), sizes_of(copies),
                           options_of<c10d::AllToAllOptions>(now));
  };
  if (whole) return run_collective(now, issue, kNoFinish);
  return run_collective(now, issue, [received, slots = with_translated_errors(now, [&] {
                                                 return byte_views(output);
                                               })] { unpack(received, slots); });
}

WorkPtr TorchCommGloo::all_gather_in_parts(const GlooCall& now, const Tensors& output,
                                           const at::Tensor& input) {
  const auto issue = [&] {
    const auto slots = byte_views(output);
    const auto own = byte_view(input);
    copy_bytes(slots[static_cast<size_t>(now.comm->rank)], own);
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
  return run_collective(now, issue, kNoFinish);
}

WorkPtr TorchCommGloo::all_to_all_bytes(const GlooCall& now, const at::Tensor& output,
                                        const at::Tensor& input, std::vector<int64_t> output_counts,
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
  return run_collective(now, issue, kNoFinish);
}

WorkPtr TorchCommGloo::all_to_all_single(at::Tensor& output, const at::Tensor& input, bool async_op,
                                         const AllToAllSingleOptions& options) {
  const auto now = begin_call(OpName::all_to_all_single, async_op, options);
  if (input.numel() == 0) return run_empty(now);
  const auto [to, from] =
      with_translated_errors(now, [&] { return std::pair(byte_view(output), byte_view(input)); });
  return all_to_all_bytes(now, to, from, {}, {});
}

WorkPtr TorchCommGloo::all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                           const Splits& output_split_sizes,
                                           const Splits& input_split_sizes, bool async_op,
                                           const AllToAllvSingleOptions& options) {
  const auto now = begin_call(OpName::all_to_all_v_single, async_op, options);
  const auto [to, from] =
      with_translated_errors(now, [&] { return std::pair(byte_view(output), byte_view(input)); });
  const auto output_counts = in_bytes(output_split_sizes, row_bytes(output));
  const auto input_counts = in_bytes(input_split_sizes, row_bytes(input));
  // Rows after the last split are not changed.
  return all_to_all_bytes(now, slice(to, 0, sum(output_counts)), slice(from, 0, sum(input_counts)),
                          output_counts, input_counts);
}

WorkPtr TorchCommGloo::all_to_all(const Tensors& output, const Tensors& input, bool async_op,
                                  const AllToAllOptions& options) {
  const auto now = begin_call(OpName::all_to_all, async_op, options);
  const auto slots = with_translated_errors(now, [&] { return byte_views(output); });
  const auto packed = with_translated_errors(now, [&] { return pack(input); });
  auto whole = joined_view(slots);
  if (whole && overlap(*whole, packed)) whole.reset();
  if (whole) return all_to_all_bytes(now, *whole, packed, sizes_of(slots), sizes_of(input));
  const auto received = scratch(total_bytes(slots), at::kByte);
  const auto issue = [&] {
    return all_to_all_flat(*group_->native, received, packed, sizes_of(slots), sizes_of(input),
                           options_of<c10d::AllToAllOptions>(now));
  };
  return run_collective(now, issue, [received, slots] { unpack(received, slots); });
}

WorkPtr TorchCommGloo::barrier(bool async_op, const BarrierOptions& options) {
  const auto now = begin_call(OpName::barrier, async_op, options);
  const auto issue = [&] {
    return enqueue([&] { return group_->native->barrier(options_of<c10d::BarrierOptions>(now)); });
  };
  return run_collective(now, issue, kNoFinish);
}

WorkPtr TorchCommGloo::scatter(at::Tensor& output, const Tensors& input, int root, bool async_op,
                               const ScatterOptions& options) {
  const auto now = begin_call(OpName::scatter, async_op, options);
  if (output.numel() == 0) return run_empty(now);
  const auto to = with_translated_errors(now, [&] { return byte_view(output); });
  std::vector<Tensors> inputs;
  if (now.comm->rank == root)
    inputs.push_back(with_translated_errors(now, [&] { return byte_views(input); }));
  // Gloo writes the root's output while it still sends the other slots.
  const bool staged = !inputs.empty() && overlaps_other_slots(to, inputs[0], now.comm->rank);
  const auto received = staged ? scratch(to.numel(), at::kByte) : to;
  const auto issue = [&] {
    auto native = options_of<c10d::ScatterOptions>(now);
    native.rootRank = root;
    Tensors outputs{received};
    return enqueue([&] { return group_->native->scatter(outputs, inputs, native); });
  };
  if (!staged) return run_collective(now, issue, kNoFinish);
  return run_collective(now, issue, [received, to] { copy_bytes(to, received); });
}

WorkPtr TorchCommGloo::gather(const Tensors& output, const at::Tensor& input, int root,
                              bool async_op, const GatherOptions& options) {
  return gather_slots(begin_call(OpName::gather, async_op, options), output, input, root);
}

WorkPtr TorchCommGloo::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                     bool async_op, const GatherSingleOptions& options) {
  const auto now = begin_call(OpName::gather_single, async_op, options);
  Tensors slots;
  if (now.comm->rank == root) slots = output.view({-1}).chunk(now.comm->size);
  return gather_slots(now, slots, input, root);
}

WorkPtr TorchCommGloo::gather_slots(const GlooCall& now, const Tensors& slots,
                                    const at::Tensor& input, int root) {
  if (input.numel() == 0) return run_empty(now);
  const auto issue = [&] {
    auto native = options_of<c10d::GatherOptions>(now);
    native.rootRank = root;
    Tensors inputs{byte_view(input)};
    std::vector<Tensors> outputs;
    if (now.comm->rank == root) outputs.push_back(byte_views(slots));
    return enqueue([&] { return group_->native->gather(outputs, inputs, native); });
  };
  return run_collective(now, issue, kNoFinish);
}

}  // namespace torch::comms
