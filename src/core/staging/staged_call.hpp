#pragma once

#include <functional>
#include <vector>

#include <c10/util/SmallVector.h>
#include <torchcomms/backend.hpp>
#include <torchcomms/operation.hpp>

#include "base/current_sequence.hpp"

namespace torch::comms {

// A tensor of a staged operation, and what must be copied for it. It holds the storage instead of
// the tensor, because a storage is freed without Python.
struct StagedOperand {
  c10::Storage storage;
  void* data;
  size_t size_bytes;
  c10::SmallVector<int64_t, 4> sizes;
  at::ScalarType dtype;
  at::Device device;
  bool is_read, is_written;
};

// An operation that outlives its call: its tensors, and a function that issues it with other
// tensors in their places.
struct StagedCall {
  OpName op = OpName::barrier;
  bool async_op = false;
  std::chrono::milliseconds timeout = kNoTimeout;  // timeout of the call
  uint64_t sequence = base::current_sequence();
  std::vector<StagedOperand> operands;
  // `hosts`: one host tensor per operand, in their order.
  std::function<WorkPtr(TorchCommBackend& backend, Tensors& hosts, bool async_op)> dispatch;
};

// Describe what each operation reads and writes on this rank.
// Throws: CommError(kInvalidArgument) without context, for a tensor without plain memory.
StagedCall staged_call(const Send& op, int rank);
StagedCall staged_call(const Recv& op, int rank);
StagedCall staged_call(const Broadcast& op, int rank);
StagedCall staged_call(const AllReduce& op, int rank);
StagedCall staged_call(const Reduce& op, int rank);
StagedCall staged_call(const AllGather& op, int rank);
StagedCall staged_call(const AllGatherV& op, int rank);
StagedCall staged_call(const AllGatherSingle& op, int rank);
StagedCall staged_call(const ReduceScatter& op, int rank);
StagedCall staged_call(const ReduceScatterV& op, int rank);
StagedCall staged_call(const ReduceScatterSingle& op, int rank);
StagedCall staged_call(const AllToAllSingle& op, int rank);
StagedCall staged_call(const AllToAllVSingle& op, int rank);
StagedCall staged_call(const AllToAll& op, int rank);
StagedCall staged_call(const Barrier& op, int rank);
StagedCall staged_call(const Scatter& op, int rank);
StagedCall staged_call(const Gather& op, int rank);
StagedCall staged_call(const GatherSingle& op, int rank);
StagedCall staged_call(const BatchOpIssue& op, int rank);

}  // namespace torch::comms
