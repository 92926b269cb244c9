#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <optional>

namespace torch::comms::bindings {

// Python's lock is given up for as long as this lives. A thread that comes back when the
// interpreter has ended stays here until its process ends, as newer Pythons have it: the older ones
// unwind it, through frames that end the process with a signal then.
class ScopedGilRelease {
 public:
  ScopedGilRelease() = default;
  ScopedGilRelease(const ScopedGilRelease&) = delete;
  ScopedGilRelease& operator=(const ScopedGilRelease&) = delete;
  ~ScopedGilRelease() {
    if (!is_finalizing_thread_) block_if_finalizing();
    try {
      PyEval_RestoreThread(state_);
    } catch (const abi::__forced_unwind&) {
      block_forever();  // the interpreter has ended while this waited for the lock
    }
  }
  // For a thread that does not end Python itself. With the lock or without.
  static void block_if_finalizing() {
    if (is_finalizing()) block_forever();
  }

  static bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#else
    return _Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#endif
  }

  [[noreturn]] static void block_forever() {
    for (;;) ::pause();
  }

 private:
  // With the lock: nobody else has it then.
  const bool is_finalizing_thread_ = is_finalizing();
  PyThreadState* const state_ = PyEval_SaveThread();
};

// Python's lock is held for as long as this lives, on any thread. One that finds that the
// interpreter ends stays, as above: when it asks for the lock, and when the older Pythons unwind it
// out of a callback in here.
class ScopedGilAcquire {
 public:
  ScopedGilAcquire() {
    if (!is_finalizing_thread_) ScopedGilRelease::block_if_finalizing();
    try {
      lock_.emplace();
    } catch (const abi::__forced_unwind&) {
      ScopedGilRelease::block_forever();
    }
  }
  ScopedGilAcquire(const ScopedGilAcquire&) = delete;
  ScopedGilAcquire& operator=(const ScopedGilAcquire&) = delete;
  ~ScopedGilAcquire() {
    if (!is_finalizing_thread_) ScopedGilRelease::block_if_finalizing();
  }

  // No interpreter is there to give the lock: what wants it to be dropped is kept.
  static bool is_unavailable() {
    return ScopedGilRelease::is_finalizing() && !is_finalizing_thread();
  }

 private:
  // While the interpreter ends: this is the thread that ends it, a process's first one, which may
  // have given up the lock for a call. (Py_IsInitialized() is false from the beginning of the end.)
  static bool is_finalizing_thread() { return PyGILState_Check() != 0 || ::getpid() == ::gettid(); }

  const bool is_finalizing_thread_ = ScopedGilRelease::is_finalizing() && is_finalizing_thread();
  std::optional<pybind11::gil_scoped_acquire> lock_;
};

// For definitions of functions that run so.
using ReleaseGil = pybind11::call_guard<ScopedGilRelease>;

}  // namespace torch::comms::bindings
