#include <pybind11/chrono.h>
#include <torchcomms/backend_wrapper.hpp>

#include "bindings/bindings.hpp"
#include "bindings/released.hpp"
#include "bindings/repr.hpp"
#include "interop/callbacks.hpp"

namespace torch::comms::bindings {

void bind_interop(py::module_& module) {
  // Registers the bases; torch has loaded it long ago.
  py::module_::import("torch._C._distributed_c10d");

  // What torch runs of a program's there wants Python's lock, and may not be ended on its way.
  set_callback_check(&WithoutLock::stay_if_python_ends);
  py::module_::import("atexit").attr("register")(py::cpp_function(
      [] { close_callbacks(std::chrono::seconds(5)); }, py::call_guard<WithoutLock>()));

  py::class_<WorkWrapper, c10d::Work, c10::intrusive_ptr<WorkWrapper>> work(
      module, "WorkWrapper", "What a call on a process group issued here.");
  def_repr(work, [](const WorkWrapper& self) {
    return bracketed("WorkWrapper", std::string(self.standing()));
  });
  py::class_<BackendWrapper::Options, c10d::Backend::Options,
             c10::intrusive_ptr<BackendWrapper::Options>>(
      module, "_BackendWrapperOptions",
      "Options of a wrapped communicator, as torch.distributed shows them.")
      .def(py::init<>());
  py::class_<BackendWrapper, c10d::Backend, c10::intrusive_ptr<BackendWrapper>> wrapper(
      module, "_BackendWrapper",
      R"(A communicator as a backend of torch.distributed's process groups.

Register it with ``pg._register_backend(device, type, wrapper)``; every call on the group then is an
operation of the communicator.)");
  def_repr(wrapper, [](const BackendWrapper& self) {
    return bracketed("_BackendWrapper", "of " + repr(*self.getComm()));
  });
  wrapper
      .def(py::init([](std::shared_ptr<TorchComm> comm) {
             return c10::make_intrusive<BackendWrapper>(std::move(comm));
           }),
           py::arg("comm").none(false),
           "Raises TypeError for None. The communicator lives as long as the wrapper.")
      .def("get_comm", &BackendWrapper::getComm, "The wrapped communicator.")
      .def("get_mem_allocator", &BackendWrapper::getMemAllocator,
           "The allocator of the communicator's backend. Raises Unsupported where it has none.")
      .def_property_readonly("options", &BackendWrapper::getBackendOptions,
                             "Options as torch.distributed shows them; backend is 'torchcomms'.")
      .def("_set_default_timeout", &BackendWrapper::setTimeout, py::arg("timeout"),
           "The limit of later calls that bring none of their own.")
      .def(
          "perform_nocolor_split", [](const BackendWrapper&, const at::Device&) {},
          py::arg("device"),
          "What torch.distributed.new_group calls on ranks outside of a group: nothing, for its "
          "members connect by themselves.")
      .def_static(
          "_verify_work_timeout",
          [](const c10::intrusive_ptr<c10d::Work>& work, std::chrono::milliseconds timeout) {
            const auto* own = dynamic_cast<const WorkWrapper*>(work.get());
            return own != nullptr && own->getTimeout() == timeout;
          },
          py::arg("work"), py::arg("timeout"),
          "True if this work of ours runs under this limit; works that do not say have the "
          "longest.");
}

}  // namespace torch::comms::bindings
