#include "bindings/arguments/arguments.hpp"

#include <limits>

#include "bindings/arguments/hints_arg.hpp"
#include "bindings/arguments/timeout_arg.hpp"

namespace torch::comms::bindings {
namespace {

// Throws: py::type_error for an object that is no sequence. Text and tensors do not count as
// sequences.
void require_sequence(const ArgumentLocation& place, const char* expected, PyObject* object) {
  if (PyUnicode_Check(object) || PyBytes_Check(object) || !PySequence_Check(object) ||
      THPVariable_Check(object))
    throw_wrong_type(place, expected, object);
}

// Returns: an owner of the new reference `made`. Throws: the Python error that is set if `made` is
// null.
py::object owned(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

long long to_integer(const ArgumentLocation& place, const char* expected, PyObject* object) {
  if (!PyIndex_Check(object) || THPVariable_Check(object))
    throw_wrong_type(place, expected, object);
  const auto number = owned(PyNumber_Index(object));
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0) throw_wrong_type(place, expected, object);
  return value;
}

}  // namespace

std::string describe_value(PyObject* object) {
  std::string seen = Py_TYPE(object)->tp_name;
  if (!PyLong_Check(object) && !PyFloat_Check(object)) return seen;
  const auto digits = py::reinterpret_steal<py::object>(PyObject_Repr(object));
  if (digits) return seen + " " + std::string(py::str(digits));
  PyErr_Clear();  // Python does not format integers of more than some thousands of digits
  return seen + " of too many digits";
}

void throw_wrong_type(const ArgumentLocation& place, const char* expected, PyObject* got) {
  throw_wrong_type(place, std::string(expected), describe_value(got));
}

void throw_wrong_type(const ArgumentLocation& place, const std::string& expected,
                      const std::string& seen) {
  std::string subject(place.function);
  if (place.argument != nullptr) subject += std::string("(): argument '") + place.argument + "'";
  throw py::type_error(subject + " must be " + expected + ", not " + seen);
}

void require_shape(const ArgumentLocation& place, PyObject* tensor) {
  const auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  if (type == THPVariableClass || type == ParameterClass) return;
  const auto lazy = py::module_::import("torch.nn.parameter").attr("UninitializedTensorMixin");
  if (PyType_IsSubtype(Py_TYPE(tensor), reinterpret_cast<PyTypeObject*>(lazy.ptr())) == 0) return;
  throw_wrong_type(
      place, "torch.Tensor with a shape",
      describe_value(tensor) + ": call its materialize(), or run its module once, before");
}

void Argument<Tensors>::load(const ArgumentLocation& place, PyObject* object) {
  require_sequence(place, kType, object);
  const auto sequence = owned(PySequence_Fast(object, kType));
  const auto count = PySequence_Fast_GET_SIZE(sequence.ptr());
  PyObject** items = PySequence_Fast_ITEMS(sequence.ptr());
  tensors_.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!THPVariable_Check(items[i])) throw_wrong_type(place, kType, items[i]);
    require_shape(place, items[i]);
    tensors_.push_back(THPVariable_Unpack(items[i]));
  }
}

void Argument<Splits>::load(const ArgumentLocation& place, PyObject* object) {
  constexpr const char* kExpected = "list[int] with entries >= 0";
  require_sequence(place, kExpected, object);
  // The elements may be of classes whose code changes the list, so a copy is read.
  const auto sequence = owned(PySequence_Tuple(object));
  const auto count = PyTuple_GET_SIZE(sequence.ptr());
  splits_.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(sequence.ptr(), i);
    const long long value = to_integer(place, kExpected, item);
    if (value < 0) throw_wrong_type(place, kExpected, item);
    splits_.push_back(static_cast<uint64_t>(value));
  }
}

void Argument<int>::load(const ArgumentLocation& place, PyObject* object) {
  const long long value = to_integer(place, kType, object);
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max())
    throw_wrong_type(place, "int of 32 bits", object);
  value_ = static_cast<int>(value);
}

void load_options(const char* function, PyObject* hints, PyObject* timeout,
                  OperationOptions& options) {
  if (hints != nullptr && hints != Py_None) {
    HintsArg given;
    given.load(hints);
    options.hints = std::move(given).as({function, "hints"});
  }
  if (timeout != nullptr && timeout != Py_None) {
    TimeoutArg limit;
    limit.load(timeout);
    options.timeout = limit.as({function, "timeout"});
  }
}

}  // namespace torch::comms::bindings
