#include "bindings/arguments/timeout_arg.hpp"

#include <datetime.h>

#include <algorithm>

#include <torchcomms/base/error.hpp>

#include "core/comm/error_context.hpp"

namespace torch::comms::bindings {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// Loads Python's C API of the datetime module if needed.
bool is_timedelta(PyObject* object) {
  if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
  if (PyDateTimeAPI == nullptr) throw py::error_already_set();
  return PyDelta_Check(object);
}

}  // namespace

void TimeoutArg::load(PyObject* object) {
  constexpr auto kMost = static_cast<double>(kMaxTimeout.count());
  if (PyFloat_Check(object)) {
    is_timeout_ = true;
    const double seconds = PyFloat_AS_DOUBLE(object);
    if (seconds >= -kMost)  // false for NaN
      timeout_ =
          duration_cast<milliseconds>(std::chrono::duration<double>(std::min(seconds, kMost)));
  } else if (is_timedelta(object)) {
    is_timeout_ = true;
    const auto days = std::chrono::hours(24) * PyDateTime_DELTA_GET_DAYS(object);
    const auto whole = std::chrono::seconds(PyDateTime_DELTA_GET_SECONDS(object)) + days;
    const std::chrono::microseconds part(PyDateTime_DELTA_GET_MICROSECONDS(object));
    // Larger values would overflow in microseconds. The function that gets the timeout rejects
    // negative values.
    if (whole >= kMaxTimeout)
      timeout_ = kMaxTimeout;
    else if (whole >= -kMaxTimeout)
      timeout_ = duration_cast<milliseconds>(whole + part);
  }
  if (timeout_) return;
  value_text_ = is_timeout_ ? std::string(py::repr(object)) : describe_value(object);
}

milliseconds TimeoutArg::as(const ArgumentLocation& place) const {
  if (timeout_) return *timeout_;
  if (!is_timeout_) throw_wrong_type(place, "datetime.timedelta or float seconds", value_text_);
  throw CommError(Errc::kInvalidArgument, "timeout is " + value_text_ + "; allowed is 0 or more",
                  {.op = std::string(place.function)});
}

}  // namespace torch::comms::bindings
