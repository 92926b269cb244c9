#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torchcomms/operation.hpp>
#include <torchcomms/types.hpp>

// torch.distributed's arguments as ours. All throw CommError(kInvalidArgument) naming `op`.
namespace torch::comms {

ReduceOp translate(const c10d::ReduceOp& op);

// The one tensor of a list: torch.distributed once had several devices a process.
const at::Tensor& require_single(const char* op, const std::vector<at::Tensor>& tensors);
const std::vector<at::Tensor>& require_single(const char* op,
                                              const std::vector<std::vector<at::Tensor>>& lists);
// The same, where a rank that is not the root has no list, or an empty one.
const std::vector<at::Tensor>& at_most_one(const char* op,
                                           const std::vector<std::vector<at::Tensor>>& lists);
void require_same_length(const char* op, size_t outputs, size_t inputs);
void require_first_tensor(const char* op, int64_t root_tensor);
// One of the program's.
void require_tag(const char* op, int tag);

// The same elements as one contiguous tensor over the same memory, in the order of the memory, if
// `tensor` is dense in any layout (channels last); else `tensor` itself.
at::Tensor flat(const at::Tensor& tensor);

// Rows to each rank.
Splits translate(const char* op, const std::vector<int64_t>& split_sizes);

}  // namespace torch::comms
