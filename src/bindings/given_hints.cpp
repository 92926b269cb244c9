#include "bindings/given_hints.hpp"

#include <utility>

namespace torch::comms::bindings {

void GivenHints::load(PyObject* object) {
  Hints found;
  if (object != Py_None) {
    if (!PyDict_Check(object)) {
      seen_ = seen_as(object);
      return;
    }
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(object, &position, &key, &value) != 0;) {
      for (PyObject* text : {key, value}) {
        if (PyUnicode_Check(text)) continue;
        seen_ = seen_as(text);
        return;
      }
      found.emplace(py::cast<std::string>(py::handle(key)),
                    py::cast<std::string>(py::handle(value)));
    }
  }
  hints_ = std::move(found);
}

Hints GivenHints::as(const Place& place) && {
  if (!hints_) wrong_type(place, "dict[str, str] or None", seen_);
  return std::move(*hints_);
}

}  // namespace torch::comms::bindings
