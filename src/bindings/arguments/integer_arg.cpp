#include "bindings/arguments/integer_arg.hpp"

namespace torch::comms::bindings {

void IntegerArg::load(PyObject* object) {
  // An int is formatted only if an error message needs it.
  is_int_ = PyLong_CheckExact(object);
  if (!is_int_) value_text_ = describe_value(object);
  if (!PyIndex_Check(object) || THPVariable_Check(object)) return;
  const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(object));
  if (!number) throw py::error_already_set();
  is_whole_ = true;
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  is_negative_ = overflow == 0 ? value < 0 : overflow < 0;
  if (overflow == 0)
    low_ = value;
  else if (is_int_)
    value_text_ = describe_value(object);
  if (overflow <= 0) return;
  const unsigned long long more = PyLong_AsUnsignedLongLong(number.ptr());
  if (PyErr_Occurred() == nullptr) high_ = more;
  PyErr_Clear();
}

void IntegerArg::refuse(const ArgumentLocation& place, bool is_signed, size_t bytes) const {
  const auto seen = is_int_ && low_ ? "int " + std::to_string(*low_) : value_text_;
  if (!is_whole_) throw_wrong_type(place, "int", seen);
  if (!is_signed && is_negative_) throw_wrong_type(place, "int >= 0", seen);
  throw_wrong_type(place, "int of " + std::to_string(8 * bytes) + " bits", seen);
}

void CmpOpArg::load(PyObject* object) {
  if (py::isinstance<SignalCmpOp>(object))
    op_ = py::cast<SignalCmpOp>(py::handle(object));
  else
    value_text_ = describe_value(object);
}

SignalCmpOp CmpOpArg::as(const ArgumentLocation& place) const {
  if (!op_)
    throw_wrong_type(place, "torchcomms.SignalCmpOp, such as torchcomms.SignalCmpOp.GE",
                     value_text_);
  return *op_;
}

}  // namespace torch::comms::bindings
