#include <numeric>

#include "backends/ctran/call_context.hpp"

// The collectives of TorchCommCtran that only move data. Units are elements of the dtype, so that
// no chunk splits one.
namespace torch::comms {

using ctran::EngineCall;
using ctran::OperandBuffers;
using schedule::Blocks;
using Kind = schedule::Operation;

namespace {

EngineCall call_of(Kind operation, const at::Tensor& like, const Blocks& blocks, int root = 0) {
  return {.name = {},
          .operation = operation,
          .dtype = static_cast<uint8_t>(like.scalar_type()),
          .element_bytes = static_cast<uint32_t>(like.element_size()),
          .root = root,
          .blocks = blocks};
}

using Offsets = c10::SmallVector<int64_t, 17>;

// Returns: the offset of each tensor of a list if the tensors lay one after the other. Units:
// elements.
Offsets offsets_of(const Tensors& tensors) {
  Offsets offsets{0};
  for (const auto& tensor : tensors) offsets.push_back(offsets.back() + tensor.numel());
  return offsets;
}

// Returns: the offset of each split, in rows of `row` elements. Units: elements.
Offsets offsets_of(const Splits& splits, int64_t row) {
  Offsets offsets{0};
  for (const auto split : splits)
    offsets.push_back(offsets.back() + static_cast<int64_t>(split) * row);
  return offsets;
}

Blocks blocks_at(const Offsets& offsets) {
  return Blocks::from_offsets({offsets.data(), offsets.size()});
}

int64_t row_elements(const at::Tensor& tensor) {
  const auto rows = tensor.dim() > 0 ? tensor.size(0) : 1;
  return rows > 0 ? tensor.numel() / rows : 0;
}

// Returns: the first `count` elements. Splits need not cover the tensor; its remaining elements are
// not changed.
at::Tensor first_elements(const at::Tensor& tensor, int64_t count) {
  return count == tensor.numel() ? tensor : tensor.view({-1}).narrow(0, 0, count);
}

}  // namespace

WorkPtr TorchCommCtran::broadcast(at::Tensor& tensor, int root, bool async_op,
                                  const BroadcastOptions& options) {
  const auto now = begin_call(OpName::broadcast, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.write(tensor);
    EngineCall call = call_of(Kind::kBroadcast, tensor, Blocks::even(tensor.numel(), size_), root);
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                                   const AllGatherOptions& options) {
  const auto now = begin_call(OpName::all_gather, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(input);
    operands.write_all(output);
    operands.separate_but_slots(0, static_cast<size_t>(rank_));
    EngineCall call = call_of(Kind::kAllGather, input, Blocks::equal(input.numel(), size_));
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::all_gather_v(const Tensors& output, const at::Tensor& input, bool async_op,
                                     const AllGatherOptions& options) {
  const auto now = begin_call(OpName::all_gather_v, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(input);
    operands.write_all(output);
    operands.separate_but_slots(0, static_cast<size_t>(rank_));
    const auto offsets = offsets_of(output);
    EngineCall call = call_of(Kind::kAllGather, input, blocks_at(offsets));
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                          bool async_op, const AllGatherSingleOptions& options) {
  const auto now = begin_call(OpName::all_gather_single, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(input);
    operands.write(output);
    operands.separate_but_parts(operands.input()[0],
                                ctran::part_of(operands.output()[0], rank_, size_));
    EngineCall call = call_of(Kind::kAllGather, input, Blocks::equal(input.numel(), size_));
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                          bool async_op, const AllToAllSingleOptions& options) {
  const auto now = begin_call(OpName::all_to_all_single, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(input);
    operands.write(output);
    operands.separate_all();
    EngineCall call = call_of(Kind::kAllToAll, input, Blocks::equal(input.numel() / size_, size_));
    call.arriving = call.blocks;
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                            const Splits& output_split_sizes,
                                            const Splits& input_split_sizes, bool async_op,
                                            const AllToAllvSingleOptions& options) {
  const auto now = begin_call(OpName::all_to_all_v_single, options);
  return with_call_context(now, [&] {
    const auto sent = offsets_of(input_split_sizes, row_elements(input));
    const auto received = offsets_of(output_split_sizes, row_elements(output));
    const auto from = first_elements(input, sent.back());
    const auto into = first_elements(output, received.back());
    OperandBuffers operands;
    operands.read(from);
    operands.write(into);
    operands.separate_all();
    EngineCall call = call_of(Kind::kAllToAll, input, blocks_at(sent));
    call.arriving = blocks_at(received);
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::all_to_all(const Tensors& output, const Tensors& input, bool async_op,
                                   const AllToAllOptions& options) {
  const auto now = begin_call(OpName::all_to_all, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read_all(input);
    operands.write_all(output);
    operands.separate_all();
    const auto sent = offsets_of(input), received = offsets_of(output);
    EngineCall call = call_of(Kind::kAllToAll, input[0], blocks_at(sent));
    call.arriving = blocks_at(received);
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::barrier(bool async_op, const BarrierOptions& options) {
  const auto now = begin_call(OpName::barrier, options);
  return with_call_context(now, [&] {
    EngineCall call{.name = {}, .operation = Kind::kBarrier, .blocks = Blocks::even(0, size_)};
    return submit(now, options, async_op, call, {});
  });
}

WorkPtr TorchCommCtran::scatter(at::Tensor& output, const Tensors& input, int root, bool async_op,
                                const ScatterOptions& options) {
  const auto now = begin_call(OpName::scatter, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.write(output);
    if (rank_ == root) {
      operands.read_all(input);
      operands.separate_but_slots(static_cast<size_t>(rank_), 0);
    }
    EngineCall call = call_of(Kind::kScatter, output, Blocks::equal(output.numel(), size_), root);
    return submit(now, options, async_op, call, operands);
  });
}

WorkPtr TorchCommCtran::gather(const Tensors& output, const at::Tensor& input, int root,
                               bool async_op, const GatherOptions& options) {
  const auto now = begin_call(OpName::gather, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(input);
    if (rank_ == root) {
      operands.write_all(output);
      operands.separate_but_slots(0, static_cast<size_t>(rank_));
    }
    return run_gather(now, options, async_op, root, input, operands);
  });
}

WorkPtr TorchCommCtran::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                      bool async_op, const GatherSingleOptions& options) {
  const auto now = begin_call(OpName::gather_single, options);
  return with_call_context(now, [&] {
    OperandBuffers operands;
    operands.read(input);
    if (rank_ == root) {
      operands.write(output);
      operands.separate_but_parts(operands.input()[0],
                                  ctran::part_of(operands.output()[0], rank_, size_));
    }
    return run_gather(now, options, async_op, root, input, operands);
  });
}

WorkPtr TorchCommCtran::run_gather(const ctran::CallInfo& now, const OperationOptions& options,
                                   bool async_op, int root, const at::Tensor& input,
                                   ctran::OperandBuffers& operands) {
  EngineCall call = call_of(Kind::kGather, input, Blocks::equal(input.numel(), size_), root);
  return submit(now, options, async_op, call, operands);
}

}  // namespace torch::comms
