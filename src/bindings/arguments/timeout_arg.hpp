#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/utils/pybind.h>

#include "bindings/arguments/arguments.hpp"

namespace torch::comms::bindings {

// A limit of time, as Python has it: a datetime.timedelta, or seconds as a float. What is longer
// than kMaxTimeout, infinity too, is that one. Takes whatever comes, as IntegerArg does, and its
// user says what is wrong; but of overloads the one comes first whose limit is one.
class TimeoutArg {
 public:
  // With the GIL. Throws what Python does where the object's repr() is asked for and raises.
  void load(PyObject* object);
  // Any thread. Throws py::type_error for what is no limit, CommError(kInvalidArgument) for a NaN
  // and what is further below zero than kMaxTimeout: both name `place`, the value and what is
  // allowed.
  std::chrono::milliseconds as(const ArgumentLocation& place) const;
  bool is_timeout() const noexcept { return is_timeout_; }

 private:
  std::optional<std::chrono::milliseconds> timeout_;
  bool is_timeout_ = false;
  std::string value_text_;  // where there is no limit_
};

using OptionalTimeoutArg = std::optional<TimeoutArg>;

inline std::optional<std::chrono::milliseconds> as_optional(const OptionalTimeoutArg& limit,
                                                            const ArgumentLocation& place) {
  return limit ? std::optional(limit->as(place)) : std::nullopt;
}

}  // namespace torch::comms::bindings

namespace pybind11::detail {

template <>
struct type_caster<torch::comms::bindings::TimeoutArg> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::TimeoutArg,
                       const_name("datetime.timedelta | float"));
  bool load(handle from, bool convert) {
    value.load(from.ptr());
    return convert || value.is_timeout();
  }
};

}  // namespace pybind11::detail
