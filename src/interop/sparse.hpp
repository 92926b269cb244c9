#pragma once

#include <memory>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// Replaces `tensor`, sparse (COO), by the sum of all ranks' tensors, or their mean. Blocks until
// all ranks have called it, to learn how many elements each has; with `async_op` those then move
// while the caller goes on. `options`: of each of the operations that it consists of.
//
// Throws CommError: kUnsupported for another layout or reduction, kSizeMismatch where shapes or
// dtypes of the ranks differ; otherwise as the operations.
WorkPtr all_reduce_sparse(const std::shared_ptr<TorchComm>& comm, const at::Tensor& tensor,
                          const ReduceOp& op, bool async_op, const AllGatherOptions& options);

}  // namespace torch::comms
