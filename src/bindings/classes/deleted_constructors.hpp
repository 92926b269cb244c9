#pragma once

#include <string>

#include "bindings/arguments/arguments.hpp"
#include "bindings/gil.hpp"

// Defines methods and constructors that only raise TypeError, with a message that names the
// alternative.
namespace torch::comms::bindings {

// Defines a constructor that always raises. `instead`: how to obtain objects of the class.
template <class Class>
void def_no_constructor(Class& bound, const std::string& instead) {
  const auto name = py::str(bound.attr("__name__")).template cast<std::string>();
  py::options options;
  options.disable_function_signatures();  // the generated signature would have no types
  const std::string doc =
      "__init__(self: torchcomms._comms." + name +
      ", *args: object, **kwargs: object) -> None\n\nRaises TypeError: " + instead + ".";
  bound.def(py::init([refusal = name + " has no constructor: " + instead](const py::args&,
                                                                          const py::kwargs&) ->
                     typename Class::holder_type { throw py::type_error(refusal); }),
            doc.c_str());
}

// Defines a method without arguments and without a result. `instead`: which function takes the
// arguments that a caller might pass to this one.
template <class Class>
void def_without_arguments(Class& bound, const char* method, void (Class::type::*function)(),
                           const std::string& instead, const std::string& doc) {
  const auto name = py::str(bound.attr("__name__")).template cast<std::string>();
  py::options options;
  options.disable_function_signatures();  // the method has two overloads but is documented as one
  const std::string all =
      std::string(method) + "(self: torchcomms._comms." + name + ") -> None\n\n" + doc;
  bound.def(method, function, ReleaseGil(), all.c_str());
  bound.def(method,
            [method = std::string(method), instead](
                const typename Class::type&, const py::args& args, const py::kwargs& kwargs) {
              std::string seen;
              if (!args.empty()) {
                seen = describe_value(py::object(args[0]).ptr());
              } else {
                const auto& [key, value] = *kwargs.begin();
                seen = py::str(key).cast<std::string>() + "=" + describe_value(value.ptr());
              }
              throw py::type_error(method + "() takes no arguments, not " + seen + ": " + instead);
            });
}

}  // namespace torch::comms::bindings
