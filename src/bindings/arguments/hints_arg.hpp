#pragma once

#include <optional>
#include <string>

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/options.hpp>

#include "bindings/arguments/arguments.hpp"

namespace torch::comms::bindings {

// The hints of a call: a dict of texts by text, or None. Takes whatever comes, as IntegerArg does,
// and its user says what is wrong; but of overloads the one comes first whose hints are a dict or
// None.
class HintsArg {
 public:
  // With the GIL.
  void load(PyObject* object);
  // Empty for None. Any thread. Throws py::type_error naming `place`, the value and what is
  // allowed.
  Hints as(const ArgumentLocation& place) &&;

 private:
  std::optional<Hints> hints_;
  std::string value_text_;  // where there are none
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
