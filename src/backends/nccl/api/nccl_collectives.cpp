#include <utility>

#include <ATen/ops/clone.h>

#include "backends/nccl/streams/launch.hpp"
#include "backends/nccl/streams/premul_scaling.hpp"
#include "core/comm/error_context.hpp"

// The collectives of NcclApiBackend: each is one call of the library, or several calls in one
// group.
namespace torch::comms {

using nccl::NcclLaunch;
using nccl::NcclReduction;
using nccl::TensorBytes;
using DataType = nccl::abi::DataType;

namespace {

// Returns: the elements of one row of dimension 0.
int64_t row_elements(const at::Tensor& tensor) {
  const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : tensor.numel();
  return rows > 0 ? tensor.numel() / rows : 0;
}

// Returns: `count` bytes of `all`, starting at `first`.
TensorBytes cut_out(const TensorBytes& all, size_t first, size_t count) {
  TensorBytes cut = all;
  if (cut.data != nullptr) cut.data += first;
  cut.size = count;
  return cut;
}
TensorBytes part_of(const TensorBytes& all, int index, int parts) {
  const size_t each = all.size / static_cast<size_t>(parts);
  return cut_out(all, each * static_cast<size_t>(index), each);
}

// Returns: `input`; or a copy, if messages into `output` would overwrite it.
at::Tensor copy_unless_disjoint(const at::Tensor& input, const Tensors& output) {
  for (const auto& tensor : output)
    if (nccl::overlap(input, tensor)) return input.clone();
  return input;
}

}  // namespace

nccl::KeptStorages NcclApiBackend::retain_storages(const nccl::NcclCall& call,
                                                   const OperandTensors& tensors) const {
  nccl::KeptStorages kept;
  // A synchronous operation runs on the current stream, whose use allocators track.
  if (!call.async_op && !launch_queue_->device().is_run_by_host()) return kept;
  for (const auto* tensor : tensors.single)
    if (tensor->defined()) kept.push_back(tensor->storage());
  for (const auto* list : tensors.lists)
    for (const auto& tensor : *list) kept.push_back(tensor.storage());
  return kept;
}

WorkPtr NcclApiBackend::copy_single_rank(const nccl::NcclCall& now, const OperationOptions& options,
                                         const at::Tensor& output, const at::Tensor& input) {
  return run(now, options, {{&output, &input}, {}}, [&](const NcclLaunch& launch) {
    const TensorBytes from(input), into(output);
    if (into.size > 0 && from.data != into.data)
      launch_queue_->device().runtime().copy_on_device(into.data, from.data, into.size,
                                                       launch.stream);
    return nccl::abi::Result(nccl::abi::kSuccess);
  });
}

WorkPtr NcclApiBackend::reduce_single_rank(const nccl::NcclCall& now,
                                           const OperationOptions& options, const ReduceOp& op,
                                           const at::Tensor& output, const at::Tensor& input) {
  const auto* const factor = op.factor();
  if (factor == nullptr) return copy_single_rank(now, options, output, input);
  // The operation runs after the current stream's work.
  with_context([&now] { return now.context(); }, [&] { nccl::scale(output, input, *factor); });
  return copy_single_rank(now, options, output, output);
}

WorkPtr NcclApiBackend::broadcast(at::Tensor& tensor, int root, bool async_op,
                                  const BroadcastOptions& options) {
  const auto now = begin_call(OpName::broadcast, async_op, options);
  return run(now, options, {{&tensor}, {}}, [&](const NcclLaunch& launch) {
    const TensorBytes bytes(tensor);
    return launch.library.Broadcast(bytes.data, bytes.data, bytes.size, DataType::kUint8, root,
                                    launch.comm, launch.stream);
  });
}

WorkPtr NcclApiBackend::all_reduce(at::Tensor& tensor, const ReduceOp& op, bool async_op,
                                   const AllReduceOptions& options) {
  const auto now = begin_call(OpName::all_reduce, async_op, options);
  return reduce(now, options, op, tensor, tensor, {{&tensor}, {}},
                [&](const NcclLaunch& launch, const NcclReduction& reduction) {
                  const TensorBytes bytes(tensor);
                  return launch.library.AllReduce(
                      bytes.data, bytes.data, static_cast<size_t>(tensor.numel()),
                      reduction.dtype(), reduction.op(), launch.comm, launch.stream);
                });
}

WorkPtr NcclApiBackend::reduce(at::Tensor& tensor, int root, const ReduceOp& op, bool async_op,
                               const ReduceOptions& options) {
  const auto now = begin_call(OpName::reduce, async_op, options);
  return reduce(now, options, op, tensor, tensor, {{&tensor}, {}},
                [&](const NcclLaunch& launch, const NcclReduction& reduction) {
                  const TensorBytes bytes(tensor);
                  return launch.library.Reduce(
                      bytes.data, bytes.data, static_cast<size_t>(tensor.numel()),
                      reduction.dtype(), reduction.op(), root, launch.comm, launch.stream);
                });
}

WorkPtr NcclApiBackend::gather_in_parts(const nccl::NcclCall& now, const OperationOptions& options,
                                        const Tensors& output, const at::Tensor& input) {
  // In place as in all_gather_single(): this rank's slot may be the input itself.
  return run(now, options, {{&input}, {&output}}, [&](const NcclLaunch& launch) {
    auto results = launch.results();
    for (int peer = 0; peer < size_; ++peer) {
      const auto& slot = output[static_cast<size_t>(peer)];
      const TensorBytes from(input), into(slot);
      results << launch.send(from, peer) << launch.receive(into, peer);
    }
    return results;
  });
}

WorkPtr NcclApiBackend::all_gather(const Tensors& output, const at::Tensor& input, bool async_op,
                                   const AllGatherOptions& options) {
  return gather_in_parts(begin_call(OpName::all_gather, async_op, options), options, output,
                         copy_unless_disjoint(input, output));
}

WorkPtr NcclApiBackend::all_gather_v(const Tensors& output, const at::Tensor& input, bool async_op,
                                     const AllGatherOptions& options) {
  return gather_in_parts(begin_call(OpName::all_gather_v, async_op, options), options, output,
                         copy_unless_disjoint(input, output));
}

WorkPtr NcclApiBackend::all_gather_single(at::Tensor& output, const at::Tensor& input,
                                          bool async_op, const AllGatherSingleOptions& options) {
  const auto now = begin_call(OpName::all_gather_single, async_op, options);
  const auto source = nccl::copy_input_if_overlapping(input, output, rank_);
  return run(now, options, {{&output, &source}, {}}, [&](const NcclLaunch& launch) {
    const TensorBytes from(source), into(output);
    return launch.library.AllGather(from.data, into.data, from.size, DataType::kUint8, launch.comm,
                                    launch.stream);
  });
}

WorkPtr NcclApiBackend::scatter_reduced(const nccl::NcclCall& now, const OperationOptions& options,
                                        const at::Tensor& output, const Tensors& input,
                                        const ReduceOp& op) {
  // One reduce to each rank, of its slot; the slots of all ranks have one size.
  const auto slots = nccl::copy_if_overlapping(input, output, rank_);
  return reduce(now, options, op, output, slots.front(), {{&output}, {&slots}},
                [&](const NcclLaunch& launch, const NcclReduction& reduction) {
                  auto results = launch.results();
                  for (int root = 0; root < size_; ++root) {
                    const auto& slot = slots[static_cast<size_t>(root)];
                    const TensorBytes from(slot), into(output);
                    results << launch.library.Reduce(from.data, root == rank_ ? into.data : nullptr,
                                                     static_cast<size_t>(slot.numel()),
                                                     reduction.dtype(), reduction.op(), root,
                                                     launch.comm, launch.stream);
                  }
                  return results;
                });
}

WorkPtr NcclApiBackend::reduce_scatter(at::Tensor& output, const Tensors& input, const ReduceOp& op,
                                       bool async_op, const ReduceScatterOptions& options) {
  return scatter_reduced(begin_call(OpName::reduce_scatter, async_op, options), options, output,
                         input, op);
}

WorkPtr NcclApiBackend::reduce_scatter_v(at::Tensor& output, const Tensors& input,
                                         const ReduceOp& op, bool async_op,
                                         const ReduceScatterOptions& options) {
  return scatter_reduced(begin_call(OpName::reduce_scatter_v, async_op, options), options, output,
                         input, op);
}

WorkPtr NcclApiBackend::reduce_scatter_single(at::Tensor& output, const at::Tensor& input,
                                              const ReduceOp& op, bool async_op,
                                              const ReduceScatterSingleOptions& options) {
  const auto now = begin_call(OpName::reduce_scatter_single, async_op, options);
  const auto source = nccl::copy_input_if_overlapping(input, output, rank_);
  return reduce(now, options, op, output, source, {{&output, &source}, {}},
                [&](const NcclLaunch& launch, const NcclReduction& reduction) {
                  const TensorBytes from(source), into(output);
                  return launch.library.ReduceScatter(
                      from.data, into.data, static_cast<size_t>(output.numel()), reduction.dtype(),
                      reduction.op(), launch.comm, launch.stream);
                });
}

WorkPtr NcclApiBackend::all_to_all_single(at::Tensor& output, const at::Tensor& input,
                                          bool async_op, const AllToAllSingleOptions& options) {
  const auto now = begin_call(OpName::all_to_all_single, async_op, options);
  const auto source = copy_unless_disjoint(input, {output});
  if (launch_queue_->communicator().library().AlltoAll != nullptr)
    return run(now, options, {{&output, &source}, {}}, [&](const NcclLaunch& launch) {
      const TensorBytes from(source), into(output);
      return launch.library.AlltoAll(from.data, into.data, into.size / static_cast<size_t>(size_),
                                     DataType::kUint8, launch.comm, launch.stream);
    });
  return run(now, options, {{&output, &source}, {}}, [&](const NcclLaunch& launch) {
    const TensorBytes from(source), into(output);
    auto results = launch.results();
    for (int peer = 0; peer < size_; ++peer)
      results << launch.send(part_of(from, peer, size_), peer)
              << launch.receive(part_of(into, peer, size_), peer);
    return results;
  });
}

WorkPtr NcclApiBackend::all_to_all_v_single(at::Tensor& output, const at::Tensor& input,
                                            const Splits& output_split_sizes,
                                            const Splits& input_split_sizes, bool async_op,
                                            const AllToAllvSingleOptions& options) {
  const auto now = begin_call(OpName::all_to_all_v_single, async_op, options);
  const auto source = copy_unless_disjoint(input, {output});
  return run(now, options, {{&output, &source}, {}}, [&](const NcclLaunch& launch) {
    const TensorBytes from(source), into(output);
    const auto sent_row = static_cast<size_t>(row_elements(source)) * source.element_size();
    const auto received_row = static_cast<size_t>(row_elements(output)) * output.element_size();
    size_t sent = 0, received = 0;
    auto results = launch.results();
    for (int peer = 0; peer < size_; ++peer) {
      const size_t out = input_split_sizes[static_cast<size_t>(peer)] * sent_row;
      const size_t in = output_split_sizes[static_cast<size_t>(peer)] * received_row;
      results << launch.send(cut_out(from, sent, out), peer)
              << launch.receive(cut_out(into, received, in), peer);
      sent += out;
      received += in;
    }
    return results;
  });
}

WorkPtr NcclApiBackend::all_to_all(const Tensors& output, const Tensors& input, bool async_op,
                                   const AllToAllOptions& options) {
  const auto now = begin_call(OpName::all_to_all, async_op, options);
  Tensors source;
  for (const auto& tensor : input) source.push_back(copy_unless_disjoint(tensor, output));
  return run(now, options, {{}, {&output, &source}}, [&](const NcclLaunch& launch) {
    auto results = launch.results();
    for (int peer = 0; peer < size_; ++peer) {
      const auto at = static_cast<size_t>(peer);
      results << launch.send(TensorBytes(source[at]), peer)
              << launch.receive(TensorBytes(output[at]), peer);
    }
    return results;
  });
}

WorkPtr NcclApiBackend::barrier(bool async_op, const BarrierOptions& options) {
  const auto now = begin_call(OpName::barrier, async_op, options);
  return run(now, options, {{&barrier_tensor_}, {}}, [&](const NcclLaunch& launch) {
    const TensorBytes bytes(barrier_tensor_);
    return launch.library.AllReduce(bytes.data, bytes.data, 1, DataType::kFloat32,
                                    nccl::abi::RedOp::kSum, launch.comm, launch.stream);
  });
}

WorkPtr NcclApiBackend::scatter(at::Tensor& output, const Tensors& input, int root, bool async_op,
                                const ScatterOptions& options) {
  const auto now = begin_call(OpName::scatter, async_op, options);
  Tensors source;
  for (size_t i = 0; rank_ == root && i < input.size(); ++i)
    source.push_back(copy_unless_disjoint(input[i], {output}));
  return run(now, options, {{&output}, {&source}}, [&](const NcclLaunch& launch) {
    auto results = launch.results();
    for (size_t peer = 0; peer < source.size(); ++peer)
      results << launch.send(TensorBytes(source[peer]), static_cast<int>(peer));
    return results << launch.receive(TensorBytes(output), root);
  });
}

WorkPtr NcclApiBackend::gather_slots(const nccl::NcclCall& now, const OperationOptions& options,
                                     const Tensors& slots, const at::Tensor& input, int root) {
  const Tensors into = rank_ == root ? slots : Tensors{};
  const auto source = copy_unless_disjoint(input, into);
  return run(now, options, {{&source}, {&into}}, [&](const NcclLaunch& launch) {
    auto results = launch.results();
    results << launch.send(TensorBytes(source), root);
    for (size_t peer = 0; peer < into.size(); ++peer)
      results << launch.receive(TensorBytes(into[peer]), static_cast<int>(peer));
    return results;
  });
}

WorkPtr NcclApiBackend::gather(const Tensors& output, const at::Tensor& input, int root,
                               bool async_op, const GatherOptions& options) {
  return gather_slots(begin_call(OpName::gather, async_op, options), options, output, input, root);
}

WorkPtr NcclApiBackend::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                      bool async_op, const GatherSingleOptions& options) {
  const auto now = begin_call(OpName::gather_single, async_op, options);
  Tensors slots;
  if (rank_ == root) {
    const auto flat = output.view({-1});
    for (int rank = 0; rank < size_; ++rank)
      slots.push_back(flat.narrow(0, rank * input.numel(), input.numel()));
  }
  return gather_slots(now, options, slots, input, root);
}

}  // namespace torch::comms
