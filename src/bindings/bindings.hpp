#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/work.hpp>

// Python knows works by this one class; to look for theirs takes as long as the rest of the way
// back.
template <>
struct pybind11::polymorphic_type_hook<torch::comms::TorchWork> {
  static const void* get(const torch::comms::TorchWork* work, const std::type_info*& its) {
    its = nullptr;
    return work;
  }
};

// The binding converts, releases the GIL around anything that can block, and ends: no logic, no
// default that C++ does not have. One bind_<concept>.cpp each; module.cpp calls them in this order.
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

// The metaclass of classes whose objects stand in graphs of torch.compile: OpaqueBaseMeta of the
// module torchcomms._opaque_meta, where compile support is on; else pybind11's own.
py::metaclass graph_metaclass();

// Adds the operations of api section "operations" to the TorchComm class: see operations.cpp.
void bind_operations(py::module_& module, py::handle comm_class);

}  // namespace torch::comms::bindings
