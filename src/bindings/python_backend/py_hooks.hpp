#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/hooks.hpp>

namespace torch::comms::bindings {

namespace py = pybind11;

// Convert Python callables to hooks. The hooks acquire the GIL for the call; a Python exception
// leaves with its own type.
PreHook to_pre_hook(py::function function);    // (name: OpName, op_id: int, args)
PostHook to_post_hook(py::function function);  // (op_id: int, args)
AbortHook to_abort_hook(py::function function);

}  // namespace torch::comms::bindings
