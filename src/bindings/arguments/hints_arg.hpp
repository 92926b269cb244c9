#pragma once

#include <optional>
#include <string>

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/options.hpp>

#include "bindings/arguments/arguments.hpp"

namespace torch::comms::bindings {

// The hints of a call: a dict of str to str, or None. load() accepts every object, as IntegerArg
// does, and as() reports the error. In overload resolution, an overload whose hints are a dict or
// None is preferred.
class HintsArg {
 public:
  // Needs the GIL.
  void load(PyObject* object);
  // Returns: the hints; empty for None.
  // Throws: py::type_error, which names `place`, the value and the expected type.
  // Threads: any.
  Hints as(const ArgumentLocation& place) &&;

 private:
  std::optional<Hints> hints_;
  std::string value_text_;  // set if there are no hints
};

}  // namespace torch::comms::bindings

namespace pybind11::detail {

template <>
struct type_caster<torch::comms::bindings::HintsArg> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::HintsArg, const_name("dict[str, str] | None"));
  bool load(handle from, bool convert) {
    if (!convert && !from.is_none() && !PyDict_Check(from.ptr())) return false;
    value.load(from.ptr());
    return true;
  }
};

}  // namespace pybind11::detail
