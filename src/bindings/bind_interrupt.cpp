#include "bindings/bindings.hpp"
#include "core/bounded.hpp"

namespace torch::comms::bindings {
namespace {

// Runs the handlers of signals that have arrived, Ctrl-C's above all. Python runs them on its main
// thread; on others this does nothing.
void run_signal_handlers() {
  if (Py_IsInitialized() == 0) return;
  py::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

void bind_interrupt(py::module_&) { set_interrupt_check(run_signal_handlers); }

}  // namespace torch::comms::bindings
