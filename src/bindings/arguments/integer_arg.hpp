#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/window.hpp>

#include "bindings/arguments/arguments.hpp"

// Parameter types of methods that pybind11 dispatches. For a value out of range, pybind11 would
// only list the accepted types. These types accept every object, and as() reports the error.
namespace torch::comms::bindings {

// An integer argument.
class IntegerArg {
 public:
  // Needs the GIL. Throws: what the object's own __index__ throws, nothing else.
  void load(PyObject* object);
  // Returns: the value as a T, which is int, int64_t or uint64_t.
  // Throws: py::type_error, which names `place`, the value and the allowed range.
  // Threads: any.
  template <class T>
  T as(const ArgumentLocation& place) const {
    if (low_ && std::in_range<T>(*low_)) return static_cast<T>(*low_);
    if (high_ && std::in_range<T>(*high_)) return static_cast<T>(*high_);
    refuse(place, std::in_range<T>(-1), sizeof(T));
  }

 private:
  [[noreturn]] void refuse(const ArgumentLocation& place, bool is_signed, size_t bytes) const;

  bool is_int_ = false, is_whole_ = false, is_negative_ = false;
  std::optional<int64_t> low_;
  std::optional<uint64_t> high_;  // set if low_ cannot hold the value
  std::string value_text_;        // empty for an int that low_ holds
};

// The comparison of a signal slot with a value.
class CmpOpArg {
 public:
  void load(PyObject* object);
  SignalCmpOp as(const ArgumentLocation& place) const;

 private:
  std::optional<SignalCmpOp> op_;
  std::string value_text_;
};

// Accepts any object with a truth value. Throws: what the object's __bool__ throws.
struct BoolArg {
  bool value = false;
};

}  // namespace torch::comms::bindings

namespace pybind11::detail {

template <>
struct type_caster<torch::comms::bindings::BoolArg> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::BoolArg, const_name("bool"));
  bool load(handle from, bool) {
    torch::comms::bindings::Argument<bool> argument;
    argument.load({}, from.ptr());
    value.value = argument.get();
    return true;
  }
};

template <>
struct type_caster<torch::comms::bindings::IntegerArg> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::IntegerArg, const_name("typing.SupportsIndex"));
  bool load(handle from, bool) {
    value.load(from.ptr());
    return true;
  }
};

template <>
struct type_caster<torch::comms::bindings::CmpOpArg> {
  PYBIND11_TYPE_CASTER(torch::comms::bindings::CmpOpArg, const_name<torch::comms::SignalCmpOp>());
  bool load(handle from, bool) {
    value.load(from.ptr());
    return true;
  }
};

}  // namespace pybind11::detail
