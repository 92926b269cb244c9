#pragma once

#include <torch/csrc/utils/pybind.h>

// Checks whether the C++ part of an instance of a bound class has been created. Python code may run
// before that, such as a subclass's own __init__, and objects that only __new__ has created never
// have it.
namespace torch::comms::bindings {

namespace py = pybind11;

// Returns: true if the C++ part of one class of an object is registered, or has its holder, such as
// a work that an operation has returned. (The memory alone may be allocated earlier.)
inline bool is_initialized(const py::detail::value_and_holder& part) {
  return part.instance_registered() || part.holder_constructed();
}

// `object` must be an instance of a bound class. Needs the GIL.
inline bool is_initialized(PyObject* object) {
  auto* const instance = reinterpret_cast<py::detail::instance*>(object);
  for (const auto& part : py::detail::values_and_holders(instance))
    if (!is_initialized(part)) return false;
  return true;
}

// The `self` of a method that also works on an uninitialized object; null in that case.
template <class Object>
struct MaybeInitializedSelf {
  const Object* object = nullptr;
};

}  // namespace torch::comms::bindings

namespace pybind11::detail {

template <class Object>
struct type_caster<torch::comms::bindings::MaybeInitializedSelf<Object>> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::MaybeInitializedSelf<Object>,
                       make_caster<Object>::name);
  bool load(handle from, bool) {
    if (!isinstance<Object>(from)) return false;
    if (torch::comms::bindings::is_initialized(from.ptr()))
      value.object = from.cast<const Object*>();
    return true;
  }
};

}  // namespace pybind11::detail
