#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::comms {

// The same elements, contiguous: `tensor` itself where it is that, or where no copy would do (an
// operation says then why).
at::Tensor contiguous(const at::Tensor& tensor);
std::vector<at::Tensor> contiguous(const std::vector<at::Tensor>& tensors);

// Whether one operation can write to them as they are: each contiguous, none over another one's
// memory.
bool are_writable_in_place(const std::vector<at::Tensor>& outputs);

// Others, with copies in their place.
class ContiguousOutputs {
 public:
  explicit ContiguousOutputs(const std::vector<at::Tensor>& outputs);

  const std::vector<at::Tensor>& tensors() const { return tensors_; }
  // Into the outputs, the last one last; on the current stream.
  void copy_back() const;

 private:
  std::vector<at::Tensor> outputs_, tensors_;
};

}  // namespace torch::comms
