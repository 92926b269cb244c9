#pragma once

#include <string>

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torchcomms/operation.hpp>

#include "bindings/initialized.hpp"

// Python arguments of the operations, converted without the cost of a general dispatcher. Every
// load_library() needs the GIL and throws py::type_error naming function, argument and what is
// expected.
namespace torch::comms::bindings {

namespace py = pybind11;

// Where an argument stands, for messages.
struct ArgumentLocation {
  const char* function;  // or "Class.attribute", of a value that is assigned
  const char* argument;  // null of such
};

// A value for messages: "int 5", "str". Needs the GIL.
std::string describe_value(PyObject* object);

[[noreturn]] void throw_wrong_type(const ArgumentLocation& place, const char* expected,
                                   PyObject* got);
// The same for what is no object any more: as describe_value() saw it. Any thread.
[[noreturn]] void throw_wrong_type(const ArgumentLocation& place, const std::string& expected,
                                   const std::string& seen);

// The C++ object inside an instance of the bound class T; null where it is none, or not made yet.
// The exact class is recognised without a registry look-up; subclasses go the long way.
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

// Throws: py::type_error for a parameter or buffer of a lazy module that has no shape yet. Torch
// gives it no elements, so that an operation on it would do nothing.
void require_shape(const ArgumentLocation& place, PyObject* tensor);

// One parameter type of an operation: load_library(), then get() for the call.
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
  // The caller's reference to the Python object outlives the call.
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

// Anything with a truth value.
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
  // The caller's reference to the Python object outlives the call.
  const ReduceOp& get() const { return *op_; }

 private:
  const ReduceOp* op_ = nullptr;
};

// `hints` and `timeout` into the options of any operation; null pointers and None leave the
// defaults.
void load_options(const char* function, PyObject* hints, PyObject* timeout,
                  OperationOptions& options);

}  // namespace torch::comms::bindings
