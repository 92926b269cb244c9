#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <optional>

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

  [[noreturn]] static void stay() {
    for (;;) ::pause();
  }

 private:
  // With the lock: nobody else has it then.
  const bool ends_python_ = is_ending();
  PyThreadState* const state_ = PyEval_SaveThread();
};

// Python's lock is held for as long as this lives, on any thread. One that finds that the
// interpreter ends stays, as above: when it asks for the lock, and when the older Pythons unwind it
// out of a callback in here.
class WithLock {
 public:
  WithLock() {
    if (!ends_python_) WithoutLock::stay_if_python_ends();
    try {
      lock_.emplace();
    } catch (const abi::__forced_unwind&) {
      WithoutLock::stay();
    }
  }
  WithLock(const WithLock&) = delete;
  WithLock& operator=(const WithLock&) = delete;
  ~WithLock() {
    if (!ends_python_) WithoutLock::stay_if_python_ends();
  }

  // No interpreter is there to give the lock: what wants it to be dropped is kept.
  static bool is_out_of_reach() { return WithoutLock::is_ending() && !has_python(); }

 private:
  // While the interpreter ends: this is the thread that ends it, a process's first one, which may
  // have given up the lock for a call. (Py_IsInitialized() is false from the beginning of the end.)
  static bool has_python() { return PyGILState_Check() != 0 || ::getpid() == ::gettid(); }

  const bool ends_python_ = WithoutLock::is_ending() && has_python();
  std::optional<pybind11::gil_scoped_acquire> lock_;
};

// For definitions of functions that run so.
using Released = pybind11::call_guard<WithoutLock>;

}  // namespace torch::comms::bindings
