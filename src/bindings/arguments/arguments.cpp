#include "bindings/arguments/arguments.hpp"

#include <datetime.h>

#include <algorithm>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "bindings/arguments/arg.hpp"
#include "core/comm/error_context.hpp"

namespace torch::comms::bindings {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;

// Returns: an owner of the new reference `object`. Throws: the Python error that is set if `object`
// is null.
py::object owned(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

// Returns: the mismatch of an object of the expected type.
MismatchPtr make_value_mismatch(const char* expected, std::string seen) {
  return std::make_unique<ArgMismatch>(ArgMismatch{expected, std::move(seen), /*has_type=*/true});
}

// Text and tensors do not count as sequences.
bool is_sequence(PyObject* object) {
  return PySequence_Check(object) != 0 && !PyUnicode_Check(object) && !PyBytes_Check(object) &&
         !THPVariable_Check(object);
}

// Returns: false for a parameter or buffer of a lazy module that has no shape yet.
bool has_shape(PyObject* tensor) {
  const auto* const type = reinterpret_cast<PyObject*>(Py_TYPE(tensor));
  if (type == THPVariableClass || type == ParameterClass) return true;
  const auto lazy = py::module_::import("torch.nn.parameter").attr("UninitializedTensorMixin");
  return PyType_IsSubtype(Py_TYPE(tensor), reinterpret_cast<PyTypeObject*>(lazy.ptr())) == 0;
}

// Loads Python's C API of the datetime module if needed.
bool is_timedelta(PyObject* object) {
  if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
  if (PyDateTimeAPI == nullptr) throw py::error_already_set();
  return PyDelta_Check(object);
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

void throw_wrong_type(const ArgumentLocation& place, const std::string& expected,
                      const std::string& seen) {
  std::string subject(place.function);
  if (place.argument != nullptr) subject += std::string("(): argument '") + place.argument + "'";
  throw py::type_error(subject + " must be " + expected + ", not " + seen);
}

MismatchPtr make_mismatch(const char* expected, PyObject* object) {
  return std::make_unique<ArgMismatch>(ArgMismatch{expected, describe_value(object)});
}

MismatchPtr convert_arg(PyObject* object, at::Tensor*& value) {
  if (!THPVariable_Check(object)) return make_mismatch("torch.Tensor", object);
  if (!has_shape(object))
    return make_value_mismatch(
        "torch.Tensor with a shape",
        describe_value(object) + ": call its materialize(), or run its module once, before");
  value = &const_cast<at::Tensor&>(THPVariable_Unpack(object));
  return {};
}

MismatchPtr convert_arg(PyObject* object, ReduceOp*& value) {
  value = unwrap<ReduceOp>(object);
  if (value != nullptr) return {};
  return make_mismatch("torchcomms.ReduceOp, such as torchcomms.ReduceOp.SUM", object);
}

MismatchPtr convert_arg(PyObject* object, Tensors& value) {
  constexpr const char* kList = "list[torch.Tensor]";
  if (!is_sequence(object)) return make_mismatch(kList, object);
  const auto sequence = owned(PySequence_Fast(object, kList));
  const auto count = PySequence_Fast_GET_SIZE(sequence.ptr());
  PyObject** items = PySequence_Fast_ITEMS(sequence.ptr());
  value.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    at::Tensor* tensor = nullptr;
    if (auto wrong = convert_arg(items[i], tensor)) {
      if (!wrong->has_type) wrong->expected = kList;
      return wrong;
    }
    value.push_back(*tensor);
  }
  return {};
}

MismatchPtr convert_arg(PyObject* object, Splits& value) {
  constexpr const char* kList = "list[int] with entries >= 0";
  if (!is_sequence(object)) return make_mismatch(kList, object);
  // The elements may be of classes whose code changes the list, so a copy is read.
  const auto sequence = owned(PySequence_Tuple(object));
  const auto count = PyTuple_GET_SIZE(sequence.ptr());
  value.reserve(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PyTuple_GET_ITEM(sequence.ptr(), i);
    int64_t rows = 0;
    if (convert_arg(item, rows) || rows < 0) return make_mismatch(kList, item);
    value.push_back(static_cast<uint64_t>(rows));
  }
  return {};
}

MismatchPtr convert_arg(PyObject* object, Hints& value) {
  constexpr const char* kDict = "dict[str, str] or None";
  if (object == Py_None) return {};
  if (!PyDict_Check(object)) return make_mismatch(kDict, object);
  PyObject *key = nullptr, *text = nullptr;
  for (Py_ssize_t position = 0; PyDict_Next(object, &position, &key, &text) != 0;) {
    for (PyObject* part : {key, text})
      if (!PyUnicode_Check(part)) return make_value_mismatch(kDict, describe_value(part));
    value.emplace(py::cast<std::string>(py::handle(key)), py::cast<std::string>(py::handle(text)));
  }
  return {};
}

MismatchPtr convert_arg(PyObject* object, milliseconds& value) {
  constexpr auto kMost = static_cast<double>(kMaxTimeout.count());
  if (PyFloat_Check(object)) {
    const double seconds = PyFloat_AS_DOUBLE(object);
    if (seconds >= -kMost) {  // false for NaN
      value = duration_cast<milliseconds>(std::chrono::duration<double>(std::min(seconds, kMost)));
      return {};
    }
  } else if (is_timedelta(object)) {
    const auto days = std::chrono::hours(24) * PyDateTime_DELTA_GET_DAYS(object);
    const auto whole = std::chrono::seconds(PyDateTime_DELTA_GET_SECONDS(object)) + days;
    const std::chrono::microseconds part(PyDateTime_DELTA_GET_MICROSECONDS(object));
    // Larger values would overflow in microseconds. The function that gets the timeout rejects
    // negative values.
    if (whole >= -kMaxTimeout) {
      value = whole >= kMaxTimeout ? kMaxTimeout : duration_cast<milliseconds>(whole + part);
      return {};
    }
  } else {
    return make_mismatch("datetime.timedelta or float seconds", object);
  }
  return make_value_mismatch("0 or more", py::repr(object));
}

template <>
void Arg<milliseconds>::refuse(const ArgumentLocation& place) const {
  const auto& [expected, seen, has_type] = *mismatch_;
  if (!has_type) throw_wrong_type(place, expected, seen);
  throw CommError(Errc::kInvalidArgument, "timeout is " + seen + "; allowed is " + expected,
                  {.op = std::string(place.function)});
}

template <std::integral T>
MismatchPtr convert_arg(PyObject* object, T& value) {
  if (!PyIndex_Check(object) || THPVariable_Check(object)) return make_mismatch("int", object);
  const auto number = owned(PyNumber_Index(object));
  int overflow = 0;
  const int64_t low = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow == 0 && std::in_range<T>(low)) {
    value = static_cast<T>(low);
    return {};
  }
  if (std::is_unsigned_v<T> && overflow <= 0) return make_mismatch("int >= 0", object);
  if (std::is_unsigned_v<T>) {
    const auto high = PyLong_AsUnsignedLongLong(number.ptr());
    if (PyErr_Occurred() == nullptr) {
      value = static_cast<T>(high);
      return {};
    }
    PyErr_Clear();
  }
  return make_mismatch(sizeof(T) == 4 ? "int of 32 bits" : "int of 64 bits", object);
}
template MismatchPtr convert_arg(PyObject*, int&);
template MismatchPtr convert_arg(PyObject*, int64_t&);
template MismatchPtr convert_arg(PyObject*, uint64_t&);

}  // namespace torch::comms::bindings
