#include <torchcomms/window.hpp>

#include "bindings/bindings.hpp"

namespace torch::comms::bindings {

void bind_window(py::module_& module) {
  py::enum_<TorchCommWinAccessType>(module, "TorchCommWinAccessType",
                                    "How a peer's window is reached.")
      .value("WIN_ACCESS_TYPE_UNIFIED", TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED)
      .value("WIN_ACCESS_TYPE_SEPARATE", TorchCommWinAccessType::WIN_ACCESS_TYPE_SEPARATE);
  py::enum_<SignalCmpOp>(module, "SignalCmpOp", "Comparison of the older window signals.")
      .value("EQ", SignalCmpOp::EQ)
      .value("GE", SignalCmpOp::GE)
      .value("LE", SignalCmpOp::LE);
  py::class_<TorchCommWindowAttr, std::shared_ptr<TorchCommWindowAttr>>(
      module, "TorchCommWindowAttr", "What a window is like, seen from one peer.")
      .def(py::init<>())
      .def_readwrite("access_type", &TorchCommWindowAttr::access_type,
                     "UNIFIED: by load and store; SEPARATE: over a network.");
  py::class_<TorchCommWindow, std::shared_ptr<TorchCommWindow>>(
      module, "TorchCommWindow", "Memory of this rank that peers write one-sidedly.");
}

}  // namespace torch::comms::bindings
