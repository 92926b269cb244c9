#pragma once

#include <string>

#include "bindings/arguments/arguments.hpp"
#include "bindings/gil.hpp"

// Calls that a class has not, refused in words that say what there is instead: TypeError, as for
// any other wrong call.
namespace torch::comms::bindings {

// A constructor that only refuses. `instead`: where objects of the class come from.
template <class Class>
void def_no_constructor(Class& bound, const std::string& instead) {
  const auto name = py::str(bound.attr("__name__")).template cast<std::string>();
  py::options options;
  options.disable_function_signatures();  // which would have no types
  const std::string doc =
      "__init__(self: torchcomms._comms." + name +
      ", *args: object, **kwargs: object) -> None\n\nRaises TypeError: " + instead + ".";
  bound.def(py::init([refusal = name + " has no constructor: " + instead](const py::args&,
                                                                          const py::kwargs&) ->
                     typename Class::holder_type { throw py::type_error(refusal); }),
            doc.c_str());
}

// A method that takes no arguments and returns none. `instead`: what takes those that one would
// give to it.
template <class Class>
void def_without_arguments(Class& bound, const char* method, void (Class::type::*function)(),
                           const std::string& instead, const std::string& doc) {
  const auto name = py::str(bound.attr("__name__")).template cast<std::string>();
  py::options options;
  options.disable_function_signatures();  // of the two that make it: it is one to its callers
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
