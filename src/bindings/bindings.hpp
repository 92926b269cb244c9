#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/work.hpp>

// TorchWork is the only work class that is bound to Python, so pybind11 needs no dynamic type. A
// lookup of that type would take as long as the rest of the return path.
template <>
struct pybind11::polymorphic_type_hook<torch::comms::TorchWork> {
  static const void* get(const torch::comms::TorchWork* work, const std::type_info*& its) {
    its = nullptr;
    return work;
  }
};

// The functions that add classes and functions to the native module torchcomms._comms. Each
// binding converts arguments, releases the GIL around any call that can block, and returns. It has
// no logic and no defaults beyond those of C++. There is one bind_<concept>.cpp per function;
// module.cpp calls them once, in this order.
//
// Throws: pybind11::error_already_set if Python raises.
// Threads: the caller holds the GIL.
namespace torch::comms::bindings {

namespace py = pybind11;

void bind_errors(py::module_& module);
void bind_interrupt(py::module_& module);
void bind_types(py::module_& module);
void bind_options(py::module_& module);
void bind_work(py::module_& module);
void bind_window(py::module_& module);
void bind_hooks(py::module_& module);
void bind_backend(py::module_& module);
void bind_batch(py::module_& module);
void bind_comm(py::module_& module);
void bind_hook_classes(py::module_& module);
void bind_introspection(py::module_& module);
void bind_stores(py::module_& module);
void bind_interop(py::module_& module);
void bind_sim(py::module_& module);
void bind_ctran(py::module_& module);

// Imports torchcomms._graph_metaclass, and creates module torchcomms._opaque_meta if compile
// support is enabled.
// Returns: the metaclass of classes whose objects may be in graphs of
// torch.compile. This is OpaqueBaseMeta of torchcomms._opaque_meta; without that module, pybind11's
// default metaclass.
py::metaclass graph_metaclass();

// Adds the collectives and messages to the TorchComm class; see operations.cpp. bind_comm() calls
// it.
void bind_operations(py::module_& module, py::handle comm_class);

}  // namespace torch::comms::bindings
