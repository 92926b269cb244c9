#include <pthread.h>

#include <atomic>

#include "bindings/bindings.hpp"
#include "bindings/gil.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::bindings {
namespace {

// Python's main thread. In a forked child it is the thread that called fork().
std::atomic<pthread_t> main_thread;

// Runs the handlers of pending signals, such as Ctrl-C, on Python's main thread. On other threads
// Python runs no handlers. Those threads block when the interpreter ends, because libraries that
// they use may already be finalized.
void run_signal_handlers() {
  if (::pthread_equal(::pthread_self(), main_thread) == 0)
    return ScopedGilRelease::block_if_finalizing();
  if (Py_IsInitialized() == 0) return;
  py::gil_scoped_acquire acquired;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace

void bind_interrupt(py::module_&) {
  const auto ident = py::module_::import("threading").attr("main_thread")().attr("ident");
  main_thread = static_cast<pthread_t>(ident.cast<unsigned long>());
  ::pthread_atfork(nullptr, nullptr, [] { main_thread = ::pthread_self(); });
  set_interrupt_check(run_signal_handlers);
  set_interpreter_exit_check(&ScopedGilRelease::is_finalizing);
}

}  // namespace torch::comms::bindings
