#pragma once

#include <c10/util/SmallVector.h>
#include <torchcomms/operation.hpp>

namespace torch::comms {

// The tensors of an operation as the caller passed them. The pointers are valid as long as the
// operation. Undefined tensors are left out. A tensor that is read and written is in both lists.
struct OperationTensors {
  c10::SmallVector<const at::Tensor*, 4> inputs, outputs;
  bool in_place = false;
};

namespace detail {
inline void add(c10::SmallVector<const at::Tensor*, 4>& list, const at::Tensor& tensor) {
  if (tensor.defined()) list.push_back(&tensor);
}
inline void add(c10::SmallVector<const at::Tensor*, 4>& list, const Tensors& tensors) {
  for (const auto& tensor : tensors) add(list, tensor);
}
}  // namespace detail

template <class Op>
OperationTensors operation_tensors(const Op& op) {
  OperationTensors found;
  if constexpr (requires { op.tensor; }) {
    if (Op::kName != OpName::recv) detail::add(found.inputs, op.tensor);
    if (Op::kName != OpName::send) detail::add(found.outputs, op.tensor);
    found.in_place = Op::kName != OpName::send && Op::kName != OpName::recv;
  }
  if constexpr (requires { op.input; }) {
    detail::add(found.inputs, op.input);
    detail::add(found.outputs, op.output);
  }
  return found;
}

}  // namespace torch::comms
