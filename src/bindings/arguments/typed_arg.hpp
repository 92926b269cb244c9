#pragma once

#include <type_traits>

#include <torch/csrc/utils/pybind.h>

#include "bindings/arguments/arguments.hpp"

namespace torch::comms::bindings {

// An argument that must be a T. The caster accepts every object, as IntegerArg does, and as()
// reports the error.
template <class T>
struct TypedArg {
  // Needs the GIL. Throws: py::type_error, which names `place` and the value. None is not accepted.
  T as(const ArgumentLocation& place, const char* expected) const {
    py::detail::make_caster<T> caster;
    if (!caster.load(object, /*convert=*/false)) throw_wrong_type(place, expected, object.ptr());
    if constexpr (std::is_same_v<T, at::Tensor>) require_shape(place, object.ptr());
    return py::detail::cast_op<T>(caster);
  }
  py::object object;
};

}  // namespace torch::comms::bindings

namespace pybind11::detail {

template <class T>
struct type_caster<torch::comms::bindings::TypedArg<T>> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::TypedArg<T>, make_caster<T>::name);
  bool load(handle from, bool) {
    value.object = reinterpret_borrow<object>(from);
    return true;
  }
};

}  // namespace pybind11::detail
