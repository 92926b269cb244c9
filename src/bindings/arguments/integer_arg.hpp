#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/window.hpp>

#include "bindings/arguments/arguments.hpp"

// Parameters of methods behind pybind11's own dispatcher, which for a value out of range would say
// no more than which types there are: these take whatever comes, and their user says what is wrong.
namespace torch::comms::bindings {

class IntegerArg {
 public:
  // With the GIL. Throws what the object's own __index__ does, nothing else.
  void load(PyObject* object);
  // As a T, one of int, int64_t and uint64_t. Any thread. Throws py::type_error naming `place`,
  // the value and what is allowed.
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
  std::optional<uint64_t> high_;  // where the above cannot hold it
  std::string value_text_;        // of all but an int that low_ holds
};

// How a slot is compared.
class CmpOpArg {
 public:
  void load(PyObject* object);
  SignalCmpOp as(const ArgumentLocation& place) const;

 private:
  std::optional<SignalCmpOp> op_;
  std::string value_text_;
};

// Anything with a truth value; what has none raises what it does.
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
