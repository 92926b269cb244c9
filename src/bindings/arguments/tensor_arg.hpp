#pragma once

#include <torch/csrc/utils/pybind.h>

#include "bindings/arguments/arguments.hpp"

namespace torch::comms::bindings {

// A tensor argument of a method that pybind11 dispatches. The tensor has a shape; see
// require_shape().
struct TensorArg {
  at::Tensor tensor;
};

}  // namespace torch::comms::bindings

namespace pybind11::detail {

template <>
struct type_caster<torch::comms::bindings::TensorArg> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::TensorArg, make_caster<at::Tensor>::name);
  bool load(handle from, bool) {
    if (!THPVariable_Check(from.ptr())) return false;
    torch::comms::bindings::require_shape({"tensor", nullptr}, from.ptr());
    value.tensor = THPVariable_Unpack(from.ptr());
    return true;
  }
};

}  // namespace pybind11::detail
