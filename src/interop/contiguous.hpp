#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::comms {

// Returns: the same elements, contiguous. This is `tensor` itself if it is contiguous, or if a copy
// would not help; then the operation reports why.
at::Tensor contiguous(const at::Tensor& tensor);
std::vector<at::Tensor> contiguous(const std::vector<at::Tensor>& tensors);

// Returns: whether one operation can write to the outputs in place: each is contiguous, and no two
// share memory.
bool are_writable_in_place(const std::vector<at::Tensor>& outputs);

// Replaces outputs that an operation cannot write to in place by contiguous copies.
class ContiguousOutputs {
 public:
  explicit ContiguousOutputs(const std::vector<at::Tensor>& outputs);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // Copies the results into the outputs, in order, on the current stream.
  void copy_back() const;

 private:
  std::vector<at::Tensor> outputs_, tensors_;
};

}  // namespace torch::comms
