#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/work.hpp>

namespace torch::comms::bindings {

namespace py = pybind11;

// Throws py::type_error for what override `method` returned: names both, and what is allowed. Needs
// the GIL.
[[noreturn]] void throw_wrong_result(const char* method, const py::object& result,
                                     const char* allowed);

// The work of a Python backend: wraps an object with poll_once(), which is called once, and again
// where it raises what is no Exception, such as KeyboardInterrupt; or nothing for an operation that
// is done. Its state is the backend's to set. Construct with the GIL held.
class PyWork : public TorchWork {
 public:
  explicit PyWork(py::object waitable);
  ~PyWork() override;

  // What override `method` returned: None gives a completed work, what has no poll_once() is a
  // throw_wrong_result(). Needs the GIL.
  static WorkPtr from_result(const char* method, const py::object& result);

  // Any thread, and several at once: the first one calls the object's poll_once(), the others wait
  // for it.
  void wait() override;
  bool endsByWaitOnly() const noexcept override { return true; }
  void force(WorkStatus status) { forceStatus(status); }

 private:
  void wait_once();
  bool poll_ended();  // after a look for a moment; with the GIL, which it lets go

  py::object waitable_;      // None while it is waited on, and after that
  bool is_waiting_ = false;  // one thread is in its poll_once()
  py::object failure_;       // the exception that its poll_once() raised; null while there is none
};

}  // namespace torch::comms::bindings
