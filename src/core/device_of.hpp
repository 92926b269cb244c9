#pragma once

#include <torchcomms/operation.hpp>

namespace torch::comms {

inline const at::Tensor* first_of_gpu(const at::Tensor& tensor) noexcept {
  return tensor.defined() && !tensor.is_cpu() ? &tensor : nullptr;
}
inline const at::Tensor* first_of_gpu(const Tensors& tensors) noexcept {
  for (const auto& tensor : tensors)
    if (const auto* found = first_of_gpu(tensor)) return found;
  return nullptr;
}

// Of the first tensor of an operation that is not on the CPU; the CPU where all are, and
// `otherwise` for an operation without tensors.
template <class Op, class Otherwise>
at::Device device_of(const Op& op, const Otherwise& otherwise) {
  const at::Tensor* found = nullptr;
  if constexpr (requires { op.tensor; }) {
    found = first_of_gpu(op.tensor);
  } else if constexpr (requires { op.input; }) {
    found = first_of_gpu(op.input);
    if (found == nullptr) found = first_of_gpu(op.output);
  } else if constexpr (requires { op.ops; }) {
    for (const auto& entry : op.ops)
      if (found == nullptr) found = first_of_gpu(entry.tensor);
  } else {
    return otherwise();
  }
  return found == nullptr ? at::Device(at::kCPU) : found->device();
}

}  // namespace torch::comms
