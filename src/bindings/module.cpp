#include "bindings/bindings.hpp"

namespace tcb = torch::comms::bindings;

namespace torch::comms::bindings {

py::metaclass graph_metaclass() {
  // torch may import this module before the package torchcomms has set the metaclass.
  const auto package = py::module_::import("torchcomms._graph_metaclass");
  package.attr("place")();
  if (!package.attr("is_placed")().cast<bool>()) return py::metaclass(py::handle());
  return py::metaclass(package.attr("metaclass")());
}

}  // namespace torch::comms::bindings

PYBIND11_MODULE(_comms, module, pybind11::mod_gil_not_used()) {
  module.doc() = "Native core of torchcomms. Use the names of the `torchcomms` package.";
  tcb::bind_errors(module);
  tcb::bind_interrupt(module);
  tcb::bind_types(module);
  tcb::bind_options(module);
  tcb::bind_work(module);
  tcb::bind_window(module);
  tcb::bind_hooks(module);
  tcb::bind_backend(module);
  tcb::bind_batch(module);
  tcb::bind_comm(module);
  tcb::bind_hook_classes(module);
  tcb::bind_introspection(module);
  tcb::bind_stores(module);
  tcb::bind_interop(module);
  tcb::bind_sim(module);
  tcb::bind_ctran(module);
}
