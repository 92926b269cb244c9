#include <pybind11/stl.h>

#include <torchcomms/factory.hpp>

#include "bindings/arguments/arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"
#include "bindings/python_backend/py_backend.hpp"

namespace torch::comms::bindings {

void bind_backend(py::module_& module) {
  py::class_<TorchCommBackend, PyBackend, std::shared_ptr<TorchCommBackend>> backend(
      module, "TorchCommBackend",
      R"(Base class of communicator backends; derive from it to write a backend in Python.

A subclass takes no constructor arguments, calls super().__init__(), and overrides
init(device, name, options), finalize(), get_rank(), get_size(), get_backend_name(), get_comm_name()
and the operations it has: the names and leading parameters of TorchComm's, with async_op last.
An operation returns None if it is complete, or an object with wait(). See docs/extending.)");
  backend.def(py::init<>());
  def_repr(backend, [](const TorchCommBackend& self) {
    return bracketed("TorchCommBackend", std::string(self.getBackendName()) + " of '" +
                                             std::string(self.getCommName()) + "'");
  });

  module.def(
      "register_backend",
      [](Arg<std::string> name, py::object backend_class) {
        constexpr const char* kFunction = "register_backend";
        const auto known_as = name.get({kFunction, "name"});
        if (PyCallable_Check(backend_class.ptr()) == 0)
          throw_wrong_type({kFunction, "backend_class"},
                           "class derived from torchcomms.TorchCommBackend",
                           describe_value(backend_class.ptr()));
        // The class is never released, because the registry cannot remove entries.
        auto* type = new py::object(std::move(backend_class));
        TorchCommFactory::get().register_backend(
            known_as, [type] { return PyBackend::create(*type); }, /*native=*/false);
      },
      py::arg("name"), py::arg("backend_class"),
      R"(Makes `backend_class` available to new_comm under `name`.

A new instance is created for each communicator. The first registration of a name wins; a later one logs a warning.
Raises TypeError if `backend_class` is not callable; whether it creates a backend is checked when it is used.)");
  module.def(
      "_is_backend_registered",
      [](const std::string& name) { return TorchCommFactory::get().is_backend_registered(name); },
      py::arg("name"), "True if new_comm finds `name` without loading anything.");
  module.def(
      "_set_backend_discovery",
      [](py::object load_all) {
        // The callable is never released, because the registry is not either.
        auto* callable = new py::object(std::move(load_all));
        TorchCommFactory::get().set_discovery([callable] {
          const ScopedGilAcquire lock;
          (*callable)();
        });
      },
      py::arg("load_all"),
      "Sets the function by which error texts find backends that are installed but not loaded.");
  module.def("_backend_library_variable", &backend_library_variable, py::arg("name"),
             "The environment variable that names the library of backend `name`.");
  module.def(
      "_registered_backends", [] { return TorchCommFactory::get().registered(); },
      "Names of the backends that are loaded, sorted.");
}

}  // namespace torch::comms::bindings
