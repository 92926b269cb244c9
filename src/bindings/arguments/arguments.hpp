#pragma once

#include <string>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torchcomms/operation.hpp>

#include "bindings/initialized.hpp"

// Converts Python arguments of the operations without the cost of a general dispatcher.
// Throws: every load() throws py::type_error, which names the function, the argument and the
// expected type.
// Threads: every load() needs the GIL.
namespace torch::comms::bindings {

namespace py = pybind11;

// The argument that an error message names.
struct ArgumentLocation {
  const char* function;  // or "Class.attribute" for an assigned value
  const char* argument;  // null for an assigned value
};

// Returns: a value for error messages, such as "int 5" or "str". Needs the GIL.
std::string describe_value(PyObject* object);

[[noreturn]] void throw_wrong_type(const ArgumentLocation& place, const char* expected,
                                   PyObject* got);
// Throws the same error for an object that no longer exists; `seen` is what describe_value()
// returned. Threads: any.
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

// Throws: py::type_error for a parameter or buffer of a lazy module that has no shape yet. torch
// reports no elements for it, so an operation on it would do nothing.
void require_shape(const ArgumentLocation& place, PyObject* tensor);

// Converts one parameter type of an operation: call load(), then get() for the call.
template <class T>
class Argument;

template <>
class Argument<at::Tensor> {
 public:
  static constexpr const char* kType = "torch.Tensor";
  void load(const ArgumentLocation& place, PyObject* object) {
    if (!THPVariable_Check(object)) throw_wrong_type(place, kType, object);
    require_shape(place, object);
    tensor_ = &const_cast<at::Tensor&>(THPVariable_Unpack(object));
  }
  // Lifetime: the caller's reference to the Python object outlives the call.
  at::Tensor& get() { return *tensor_; }

 private:
  at::Tensor* tensor_ = nullptr;
};

template <>
class Argument<Tensors> {
 public:
  static constexpr const char* kType = "list[torch.Tensor]";
  void load(const ArgumentLocation& place, PyObject* object);
  const Tensors& get() { return tensors_; }

 private:
  Tensors tensors_;
};

template <>
class Argument<Splits> {
 public:
  static constexpr const char* kType = "list[int]";
  void load(const ArgumentLocation& place, PyObject* object);
  const Splits& get() { return splits_; }

 private:
  Splits splits_;
};

template <>
class Argument<int> {
 public:
  static constexpr const char* kType = "int";
  void load(const ArgumentLocation& place, PyObject* object);
  int get() const { return value_; }

 private:
  int value_ = 0;
};

// Accepts any object with a truth value.
template <>
class Argument<bool> {
 public:
  static constexpr const char* kType = "bool";
  void load(const ArgumentLocation&, PyObject* object) {
    const int truth = PyObject_IsTrue(object);
    if (truth < 0) throw py::error_already_set();
    value_ = truth == 1;
  }
  bool get() const { return value_; }

 private:
  bool value_ = false;
};

template <>
class Argument<ReduceOp> {
 public:
  static constexpr const char* kType = "torchcomms._comms.ReduceOp";
  void load(const ArgumentLocation& place, PyObject* object) {
    op_ = unwrap<ReduceOp>(object);
    if (op_ == nullptr)
      throw_wrong_type(place, "torchcomms.ReduceOp, such as torchcomms.ReduceOp.SUM", object);
  }
  // Lifetime: the caller's reference to the Python object outlives the call.
  const ReduceOp& get() const { return *op_; }

 private:
  const ReduceOp* op_ = nullptr;
};

// Converts `hints` and `timeout` into the options of an operation. A null pointer or None keeps the
// default.
void load_options(const char* function, PyObject* hints, PyObject* timeout,
                  OperationOptions& options);

}  // namespace torch::comms::bindings
