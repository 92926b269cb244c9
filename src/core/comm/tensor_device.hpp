#pragma once

#include <algorithm>
#include <type_traits>

#include <torchcomms/operation.hpp>

namespace torch::comms {

// Returns: the first tensor that is not on the CPU; null if there is none.
inline const at::Tensor* first_gpu_tensor(const at::Tensor& tensor) noexcept {
  return tensor.defined() && !tensor.is_cpu() ? &tensor : nullptr;
}
inline const at::Tensor* first_gpu_tensor(const Tensors& tensors) noexcept {
  for (const auto& tensor : tensors)
    if (const auto* found = first_gpu_tensor(tensor)) return found;
  return nullptr;
}

// Returns: the device of the first tensor of an operation that is not on the CPU; the CPU if all
// tensors are there; `otherwise()` for an operation without tensors.
template <class Op, class Otherwise>
at::Device device_of(const Op& op, const Otherwise& otherwise) {
  const at::Tensor* found = nullptr;
  if constexpr (requires { op.tensor; }) {
    found = first_gpu_tensor(op.tensor);
  } else if constexpr (requires { op.input; }) {
    found = first_gpu_tensor(op.input);
    if (found == nullptr) found = first_gpu_tensor(op.output);
  } else if constexpr (requires { op.ops; }) {
    for (const auto& entry : op.ops)
      if (found == nullptr) found = first_gpu_tensor(entry.tensor);
  } else {
    return otherwise();
  }
  return found == nullptr ? at::Device(at::kCPU) : found->device();
}

// Returns: whether every tensor of the operation is on a device of this type.
template <class Op>
bool all_on_device(const Op& op, at::DeviceType type) {
  const auto one = [type](const at::Tensor& tensor) {
    return !tensor.defined() || tensor.device().type() == type;
  };
  const auto all = [&one](const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>)
      return one(value);
    else
      return std::all_of(value.begin(), value.end(), one);
  };
  if constexpr (requires { op.tensor; }) {
    return all(op.tensor);
  } else if constexpr (requires { op.input; }) {
    return all(op.input) && all(op.output);
  } else if constexpr (requires { op.ops; }) {
    return std::all_of(op.ops.begin(), op.ops.end(),
                       [&](const auto& entry) { return one(entry.tensor); });
  } else {
    return true;
  }
}

}  // namespace torch::comms
