#pragma once

#include <torch/csrc/utils/pybind.h>
#include <torchcomms/work.hpp>

namespace torch::comms::bindings {

namespace py = pybind11;

// Throws: py::type_error for the result of Python method `method`, which names both and what is
// allowed. Needs the GIL.
[[noreturn]] void throw_wrong_result(const char* method, const py::object& result,
                                     const char* allowed);

// The work of a Python backend. It wraps an object with wait(), or None for an operation that is
// complete. wait() of the object is called once, and again if it raises something that is no
// Exception, such as KeyboardInterrupt. The backend sets the status of the work.
class PyWork : public TorchWork {
  // Needs the GIL.
 public:
  explicit PyWork(py::object waitable);
  ~PyWork() override;

  // Returns: the work for the result of Python method `method`; a completed work for None.
  // Throws: throw_wrong_result() for an object without wait(). Needs the GIL.
  static WorkPtr from_result(const char* method, const py::object& result);

  // The first thread calls the object's wait(); other threads wait for that thread.
  // Threads: any, also several at once.
  void wait() override;
  bool endsByWaitOnly() const noexcept override { return true; }
  void force(WorkStatus status) { forceStatus(status); }

 private:
  void wait_once();
  bool poll_ended();  // waits for a moment, without the GIL; needs the GIL

  py::object waitable_;      // None while a thread waits on it, and after that
  bool is_waiting_ = false;  // a thread is in the object's wait()
  py::object failure_;       // the exception that wait() raised; null if there is none
};

}  // namespace torch::comms::bindings
