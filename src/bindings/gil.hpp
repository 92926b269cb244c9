#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <optional>

namespace torch::comms::bindings {

// Releases Python's GIL while this object lives. A thread that needs the GIL again after the
// interpreter has ended blocks until the process exits, as in newer versions of Python. Older
// versions would unwind the thread through frames that terminate the process with a signal.
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
      block_forever();  // the interpreter has ended while this thread waited for the GIL
    }
  }
  // Blocks the calling thread for good if the interpreter is ending. The thread that ends the
  // interpreter must not call this. Works with and without the GIL.
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
  // Read while this thread still holds the GIL, so that no other thread can be ending the
  // interpreter.
  const bool is_finalizing_thread_ = is_finalizing();
  PyThreadState* const state_ = PyEval_SaveThread();
};

// Holds Python's GIL while this object lives, on any thread. If the interpreter is ending, the
// thread blocks until the process exits: when it asks for the GIL, and when an older version of
// Python unwinds it out of a callback.
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

  // Returns: true if the GIL cannot be acquired any more. Python objects are leaked then.
  static bool is_unavailable() {
    return ScopedGilRelease::is_finalizing() && !is_finalizing_thread();
  }

 private:
  // Returns: true if this thread is ending the interpreter. That is the process's first thread,
  // which may have released the GIL for a call. (Py_IsInitialized() is false from the beginning of
  // finalization.)
  static bool is_finalizing_thread() { return PyGILState_Check() != 0 || ::getpid() == ::gettid(); }

  const bool is_finalizing_thread_ = ScopedGilRelease::is_finalizing() && is_finalizing_thread();
  std::optional<pybind11::gil_scoped_acquire> lock_;
};

// A call guard for bound functions that run without the GIL.
using ReleaseGil = pybind11::call_guard<ScopedGilRelease>;

}  // namespace torch::comms::bindings
