#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

namespace torch::comms::bindings {

// Python's lock is given up for as long as this lives. A thread that comes back when the
// interpreter has ended stays here until its process ends, as newer Pythons have it: the older ones
// unwind it, through frames that end the process with a signal then.
class WithoutLock {
 public:
  WithoutLock() = default;
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;
  ~WithoutLock() {
    if (!ends_python_) stay_if_python_ends();
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      stay();  // the interpreter has ended while this waited for the lock
    }
  }
  // For a thread that does not end Python itself. With the lock or without.
  static void stay_if_python_ends() {
    if (is_ending()) stay();
  }

  static bool is_ending() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#else
    return _Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#endif
  }

 private:
  [[noreturn]] static void stay() {
    for (;;) ::pause();
  }

  // With the lock: nobody else has it then.
  const bool ends_python_ = is_ending();
  PyThreadState* const state_ = PyEval_SaveThread();
};

// For definitions of functions that run so.
using Released = pybind11::call_guard<WithoutLock>;

}  // namespace torch::comms::bindings
