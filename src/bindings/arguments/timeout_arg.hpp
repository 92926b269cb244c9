#pragma once

#include <chrono>
#include <optional>
#include <string>

#include <torch/csrc/utils/pybind.h>

#include "bindings/arguments/arguments.hpp"

namespace torch::comms::bindings {

// A duration argument: a datetime.timedelta, or seconds as a float. Values above kMaxTimeout, also
// infinity, become kMaxTimeout. load() accepts every object, as IntegerArg does, and as() reports
// the error. In overload resolution, an overload whose timeout is a duration is preferred.
class TimeoutArg {
 public:
  // Needs the GIL. Throws: what the object's __repr__ throws, if that is needed for an error
  // message.
  void load(PyObject* object);
  // Returns: the duration in milliseconds.
  // Throws: py::type_error for a value that is no duration, and CommError(kInvalidArgument) for NaN
  // and values below -kMaxTimeout. Both name `place`, the value and what is allowed.
  // Threads: any.
  std::chrono::milliseconds as(const ArgumentLocation& place) const;
  bool is_timeout() const noexcept { return is_timeout_; }

 private:
  std::optional<std::chrono::milliseconds> timeout_;
  bool is_timeout_ = false;
  std::string value_text_;  // set if there is no timeout_
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
