#include "bindings/arguments/hints_arg.hpp"

#include <utility>

namespace torch::comms::bindings {

void HintsArg::load(PyObject* object) {
  Hints found;
  if (object != Py_None) {
    if (!PyDict_Check(object)) {
      value_text_ = describe_value(object);
      return;
    }
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(object, &position, &key, &value) != 0;) {
      for (PyObject* text : {key, value}) {
        if (PyUnicode_Check(text)) continue;
        value_text_ = describe_value(text);
        return;
      }
      found.emplace(py::cast<std::string>(py::handle(key)),
                    py::cast<std::string>(py::handle(value)));
    }
  }
  hints_ = std::move(found);
}

Hints HintsArg::as(const ArgumentLocation& place) && {
  if (!hints_) throw_wrong_type(place, "dict[str, str] or None", value_text_);
  return std::move(*hints_);
}

}  // namespace torch::comms::bindings
