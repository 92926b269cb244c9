#include "bindings/python_backend/py_work.hpp"

#include <torchcomms/base/error.hpp>

#include "bindings/bindings.hpp"
#include "bindings/classes/deleted_constructors.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::bindings {

PyWork::PyWork(py::object waitable) : waitable_(std::move(waitable)) {}

PyWork::~PyWork() {
  if (ScopedGilAcquire::is_unavailable()) {
    waitable_.release();
    failure_.release();
    return;
  }
  const ScopedGilAcquire lock;
  waitable_ = py::object();
  failure_ = py::object();
}

void throw_wrong_result(const char* method, const py::object& result, const char* allowed) {
  throw py::type_error(std::string(method) + ": the override returned " +
                       std::string(py::repr(result)) + ", allowed is " + allowed);
}

WorkPtr PyWork::from_result(const char* method, const py::object& result) {
  if (!result.is_none() && !py::hasattr(result, "wait"))
    throw_wrong_result(method, result, "None or an object with wait()");
  auto work = c10::make_intrusive<PyWork>(result);
  if (result.is_none()) work->setStatus(WorkStatus::COMPLETED);
  return work;
}

void PyWork::wait() {
  runWaitPreHooks();
  wait_once();
  runWaitPostHooks();
  const ScopedGilAcquire lock;
  if (!failure_) return;
  // A Python error can be raised only once, so each wait() raises a new one around the same
  // exception object.
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(failure_.ptr())), failure_.ptr());
  throw py::error_already_set();
}

bool PyWork::poll_ended() {
  constexpr std::chrono::milliseconds kTick{50};
  ScopedGilRelease gil_release;
  if (waitForTerminal(kTick)) return true;
  check_interrupt_unwrapped();
  return false;
}

void PyWork::wait_once() {
  const ScopedGilAcquire lock;
  while (is_waiting_)  // until the other thread has ended the work or was interrupted
    if (poll_ended()) return;
  if (waitable_.is_none()) return;
  // The object is dropped first, so that its wait() is called only once.
  py::object waitable = std::exchange(waitable_, py::none());
  is_waiting_ = true;
  try {
    waitable.attr("wait")();
    is_waiting_ = false;
    setStatus(WorkStatus::COMPLETED);
  } catch (py::error_already_set& error) {
    is_waiting_ = false;
    if (!error.matches(PyExc_Exception)) {  // an error of the waiting thread, such as Ctrl-C
      waitable_ = std::move(waitable);
      throw;
    }
    failure_ = error.value();
    setStatus(WorkStatus::ERROR, std::make_exception_ptr(CommError(
                                     Errc::kVendor, py::str(failure_).cast<std::string>())));
  }
}

void bind_work(py::module_& module) {
  py::class_<TorchWork, c10::intrusive_ptr<TorchWork>> work(module, "TorchWork",
                                                            R"(One issued operation.

It may be dropped before completion; the operation still completes.)");
  def_no_constructor(work, "operations of a communicator return one");
  const std::string limits =
      "pass 'timeout' to the operation itself, datetime.timedelta or float seconds";
  def_without_arguments(
      work, "wait", &TorchWork::wait, limits,
      R"(CPU: blocks until the operation is complete. GPU: the current stream waits, the host continues.

Every call raises the operation's error. Repeated calls are allowed.)");
  def_without_arguments(work, "wait_blocking", &TorchWork::waitBlocking, limits,
                        "Blocks the host until the operation is complete. Raises Unsupported if "
                        "the work has no such wait.");
  work.def("is_completed", &TorchWork::isCompleted, ReleaseGil(),
           "True if the operation has succeeded; False while it runs, and after a failure.")
      .def(
          "_set_status",
          [](TorchWork& self, WorkStatus status) {
            auto* work = dynamic_cast<PyWork*>(&self);
            if (work == nullptr)
              throw CommError(Errc::kUnsupported,
                              "_set_status() is supported only for works of Python backends");
            work->force(status);
          },
          py::arg("status"), "Sets the state of a work that a Python backend returned.");
  def_repr(work);
}

}  // namespace torch::comms::bindings
