#pragma once

#include <chrono>
#include <concepts>
#include <optional>
#include <type_traits>

#include "bindings/arguments/arguments.hpp"

namespace torch::comms::bindings {

// A parameter of a bound function. For a wrong value, pybind11 would only list the accepted types.
// An Arg accepts every object, and get() reports the error.
template <class T>
class Arg {
 public:
  // Needs the GIL. Throws: what convert_arg() throws.
  void load(PyObject* object) { mismatch_ = convert_arg(object, value_); }

  // Throws: py::type_error; CommError(kInvalidArgument) for NaN and for timeouts below
  // -kMaxTimeout. Both name `place`, the value and what is allowed.
  // Threads: any, with or without the GIL.
  T& get(const ArgumentLocation& place) {
    if (mismatch_) refuse(place);
    if constexpr (std::is_pointer_v<Value>)
      return *value_;
    else
      return value_;
  }

  // Returns: true if the object has the expected type, also if its value is not allowed.
  bool has_type() const { return !mismatch_ || mismatch_->has_type; }

 private:
  // An Arg refers to the tensor or the reduce op that is in the Python object.
  using Value =
      std::conditional_t<std::is_same_v<T, at::Tensor> || std::is_same_v<T, ReduceOp>, T*, T>;

  [[noreturn]] void refuse(const ArgumentLocation& place) const {
    throw_wrong_type(place, mismatch_->expected, mismatch_->seen);
  }

  Value value_{};
  MismatchPtr mismatch_;
};

template <>
[[noreturn]] void Arg<std::chrono::milliseconds>::refuse(const ArgumentLocation& place) const;

using TimeoutArg = Arg<std::chrono::milliseconds>;

// Returns: the value of an argument that may be None.
template <class T>
std::optional<T> get_optional(std::optional<Arg<T>>& arg, const ArgumentLocation& place) {
  return arg ? std::optional(arg->get(place)) : std::nullopt;
}

// A tensor argument with a shape. pybind11 itself refuses an object that is no tensor, and its
// error lists the signatures of the function.
struct TensorArg {
  at::Tensor tensor;
};

// The type that a Python signature shows for an Arg<T>.
template <class T>
inline constexpr auto kSignatureType = py::detail::make_caster<T>::name;
template <std::integral T>
inline constexpr auto kSignatureType<T> = py::detail::const_name("typing.SupportsIndex");
template <>
inline constexpr auto kSignatureType<bool> = py::detail::const_name("bool");
template <>
inline constexpr auto kSignatureType<Hints> = py::detail::const_name("dict[str, str] | None");
template <>
inline constexpr auto kSignatureType<std::chrono::milliseconds> =
    py::detail::const_name("datetime.timedelta | float");

}  // namespace torch::comms::bindings

namespace pybind11::detail {

template <class T>
struct type_caster<torch::comms::bindings::Arg<T>> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::Arg<T>, torch::comms::bindings::kSignatureType<T>);
  bool load(handle from, bool convert) {
    value.load(from.ptr());
    // In overload resolution, an overload whose hints are a dict or None and whose timeout is a
    // duration is preferred.
    if constexpr (std::is_same_v<T, torch::comms::Hints> ||
                  std::is_same_v<T, std::chrono::milliseconds>)
      return convert || value.has_type();
    return true;
  }
};

template <>
struct type_caster<torch::comms::bindings::TensorArg> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::TensorArg, make_caster<at::Tensor>::name);
  bool load(handle from, bool) {
    torch::comms::bindings::Arg<at::Tensor> arg;
    arg.load(from.ptr());
    if (!arg.has_type()) return false;
    value.tensor = arg.get({"tensor", nullptr});
    return true;
  }
};

}  // namespace pybind11::detail
