#pragma once

#include <memory>

#include <torchcomms/comm.hpp>

namespace torch::comms {

// Replaces the sparse (COO) `tensor` by the sum or the mean of all ranks' tensors. With `async_op`,
// the elements move in the background. `options` apply to each of the operations that it issues.
// Blocks: until all ranks have called it, because the ranks first exchange their numbers of
// elements.
// Throws: CommError: kUnsupported for another layout or reduction; kMismatch if shapes or dtypes of
// the ranks differ; otherwise as the issued operations.
WorkPtr all_reduce_sparse(const std::shared_ptr<TorchComm>& comm, const at::Tensor& tensor,
                          const ReduceOp& op, bool async_op, const AllGatherOptions& options);

}  // namespace torch::comms
