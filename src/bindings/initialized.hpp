#pragma once

#include <torch/csrc/utils/pybind.h>

// Instances of bound classes whose native part may not be made yet: Python code runs before, as a
// subclass's own __init__, and objects of __new__ alone have none.
namespace torch::comms::bindings {

namespace py = pybind11;

// Of one class of an object: it is noted as made, or has its owner, as a work that an operation has
// returned. (Memory alone it may have before.)
inline bool is_initialized(const py::detail::value_and_holder& part) {
  return part.instance_registered() || part.holder_constructed();
}

// `object`: of a bound class. Needs the GIL.
inline bool is_initialized(PyObject* object) {
  auto* const instance = reinterpret_cast<py::detail::instance*>(object);
  for (const auto& part : py::detail::values_and_holders(instance))
    if (!is_initialized(part)) return false;
  return true;
}

// The `self` of a method that can do without: null where it is not made yet.
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
