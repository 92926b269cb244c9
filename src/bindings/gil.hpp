#pragma once

#include <cxxabi.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <optional>

namespace torch::comms::bindings {

// Releases Python's GIL while this object lives. If the interpreter ends meanwhile, the destructor
// blocks the thread until the process exits, as newer versions of Python do. Older versions would
// unwind the thread through frames that terminate the process with a signal. The destructor does
// not block the thread that ends the interpreter.
// Threads: one that holds the GIL; create and destroy the object on the same thread.
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
  // Returns at once while the interpreter runs. If the interpreter is ending, blocks the calling
  // thread until the process exits.
  // Threads: any, with or without the GIL, except the thread that ends the interpreter.
  static void block_if_finalizing() {
    if (is_finalizing()) block_forever();
  }

  // True while the interpreter is ending and after it has ended.
  // Threads: any, with or without the GIL.
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

// Holds Python's GIL while this object lives. The thread may hold the GIL already. If the
// interpreter is ending, the constructor and the destructor block the thread until the process
// exits. The destructor does so because older versions of Python unwind a thread out of a callback.
// Neither blocks the thread that ends the interpreter. A C++ destructor that drops Python objects
// must not block, so it checks is_unavailable() first.
// Threads: any; create and destroy the object on the same thread.
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

  // Returns: true if this thread cannot acquire the GIL any more. The caller then leaks its Python
  // objects.
  static bool is_unavailable() {
    return ScopedGilRelease::is_finalizing() && !is_finalizing_thread();
  }

 private:
  // Returns: true if this thread is ending the interpreter, as far as is known. Call it only while
  // the interpreter is ending. Then a thread that holds the GIL is the one; so is the process's
  // first thread, which may have released the GIL for a call. (Py_IsInitialized() is false from the
  // beginning of finalization.)
  static bool is_finalizing_thread() { return PyGILState_Check() != 0 || ::getpid() == ::gettid(); }

  const bool is_finalizing_thread_ = ScopedGilRelease::is_finalizing() && is_finalizing_thread();
  std::optional<pybind11::gil_scoped_acquire> lock_;
};

// A call guard for bound functions that run without the GIL.
using ReleaseGil = pybind11::call_guard<ScopedGilRelease>;

}  // namespace torch::comms::bindings
