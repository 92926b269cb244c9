#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torchcomms/operation.hpp>
#include <torchcomms/types.hpp>

// Converts arguments of torch.distributed to those of torchcomms.
// Throws: CommError(kInvalidArgument), which names `op`.
namespace torch::comms {

ReduceOp translate(const c10d::ReduceOp& op);

// Returns: the only tensor of a list. c10d passes lists because it once supported several devices
// per process.
const at::Tensor& require_single(const char* op, const std::vector<at::Tensor>& tensors);
const std::vector<at::Tensor>& require_single(const char* op,
                                              const std::vector<std::vector<at::Tensor>>& lists);
// Returns: the only list, or an empty list on a rank other than the root.
const std::vector<at::Tensor>& at_most_one(const char* op,
                                           const std::vector<std::vector<at::Tensor>>& lists);
void require_same_length(const char* op, size_t outputs, size_t inputs);
void require_first_tensor(const char* op, int64_t root_tensor);
// Checks that the tag is one that a program may use.
void require_tag(const char* op, int tag);

// Returns: the same elements as one contiguous tensor over the same memory, in memory order, if
// `tensor` is dense in any layout (such as channels last); otherwise `tensor` itself.
at::Tensor flat(const at::Tensor& tensor);

// Returns: the number of rows for each rank.
Splits translate(const char* op, const std::vector<int64_t>& split_sizes);

}  // namespace torch::comms
