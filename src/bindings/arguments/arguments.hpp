#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torchcomms/operation.hpp>

#include "bindings/initialized.hpp"

namespace torch::comms {
class TorchComm;
enum class SignalCmpOp : uint8_t;
}  // namespace torch::comms

// Converts Python arguments, with errors that name the function, the argument, the value and the
// expected type.
namespace torch::comms::bindings {

namespace py = pybind11;

// The argument that an error message names.
struct ArgumentLocation {
  const char* function;  // or "Class.attribute" for an assigned value
  const char* argument;  // null for an assigned value
};

// Returns: a value for error messages, such as "int 5" or "str". Needs the GIL.
std::string describe_value(PyObject* object);

// Throws: py::type_error. `seen` is what describe_value() returned.
// Threads: any, with or without the GIL.
[[noreturn]] void throw_wrong_type(const ArgumentLocation& place, const std::string& expected,
                                   const std::string& seen);

// Returns: the C++ object inside an instance of the bound class T; null for another object or an
// uninitialized one. The exact class is recognized without a registry lookup; subclasses take the
// slow path.
template <class T>
T* unwrap(PyObject* object) {
  static PyTypeObject* const exact =
      reinterpret_cast<PyTypeObject*>(py::detail::get_type_handle(typeid(T), true).ptr());
  if (Py_TYPE(object) == exact) {
    const auto part = reinterpret_cast<py::detail::instance*>(object)->get_value_and_holder();
    return is_initialized(part) ? static_cast<T*>(part.value_ptr()) : nullptr;
  }
  if (!py::isinstance<T>(object) || !is_initialized(object)) return nullptr;
  return py::cast<T*>(py::handle(object));
}

// Why an object does not convert.
struct ArgMismatch {
  const char* expected;
  std::string seen;       // what describe_value() returned for the object or for a part of it
  bool has_type = false;  // the object has the expected type, but not an allowed value
};

// Null if the object converts.
using MismatchPtr = std::unique_ptr<ArgMismatch>;

// Returns: the mismatch of an object of another type. Needs the GIL.
MismatchPtr make_mismatch(const char* expected, PyObject* object);

// The functions convert_arg() set `value`, or return why `object` does not convert.
// Throws: what the object's own code throws, such as its __index__.
// Threads: the caller holds the GIL.
//
// A tensor has a shape. A parameter or buffer of a lazy module that has no shape yet is refused:
// torch reports no elements for it, so an operation on it would do nothing.
// Lifetime: the caller's reference to the Python object outlives the pointer.
MismatchPtr convert_arg(PyObject* object, at::Tensor*& value);
MismatchPtr convert_arg(PyObject* object, ReduceOp*& value);
// Lists may be any sequence.
MismatchPtr convert_arg(PyObject* object, Tensors& value);
MismatchPtr convert_arg(PyObject* object, Splits& value);
// Hints are a dict of str to str, or None for no hints.
MismatchPtr convert_arg(PyObject* object, Hints& value);
// A timeout is a datetime.timedelta, or seconds as a float. Values above kMaxTimeout, also
// infinity, become kMaxTimeout.
MismatchPtr convert_arg(PyObject* object, std::chrono::milliseconds& value);
// An integer is anything with __index__, except a tensor. Defined for int, int64_t and uint64_t.
template <std::integral T>
MismatchPtr convert_arg(PyObject* object, T& value);
// Accepts any object with a truth value.
inline MismatchPtr convert_arg(PyObject* object, bool& value) {
  const int truth = PyObject_IsTrue(object);
  if (truth < 0) throw py::error_already_set();
  value = truth == 1;
  return {};
}

// The expected text of the other types, which convert as pybind11 converts them.
template <class T>
inline constexpr const char* kExpected = nullptr;
template <>
inline constexpr const char* kExpected<std::string> = "str";
template <>
inline constexpr const char* kExpected<py::function> = "callable";
template <>
inline constexpr const char* kExpected<std::shared_ptr<TorchComm>> = "torchcomms.TorchComm";
template <>
inline constexpr const char* kExpected<BatchP2POptions> = "torchcomms.BatchP2POptions or None";
template <>
inline constexpr const char* kExpected<SignalCmpOp> =
    "torchcomms.SignalCmpOp, such as torchcomms.SignalCmpOp.GE";

template <class T>
MismatchPtr convert_arg(PyObject* object, T& value) {
  static_assert(kExpected<T> != nullptr);
  py::detail::make_caster<T> caster;
  if (!caster.load(object, /*convert=*/false)) return make_mismatch(kExpected<T>, object);
  value = py::detail::cast_op<T>(caster);
  return {};
}

}  // namespace torch::comms::bindings
