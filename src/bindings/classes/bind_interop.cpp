#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torchcomms/backend_wrapper.hpp>

#include <vector>

#include <torchcomms/base/error.hpp>

#include "bindings/arguments/arguments.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"
#include "interop/callbacks.hpp"

namespace torch::comms::bindings {
namespace {

// Needs the GIL. Throws: py::type_error if `pool` is no memory pool.
void require_pool(const char* method, const py::object& pool) {
  if (!py::hasattr(pool, "id") || !py::hasattr(pool, "snapshot"))
    throw_wrong_type({method, "pool"}, "torch.cuda.MemPool", describe_value(pool.ptr()));
}

BackendWrapper::MemPoolId id_of(const py::object& pool) {
  return pool.attr("id").cast<BackendWrapper::MemPoolId>();
}

// Needs the GIL. `type` is the type of a device that the pool gives by number.
std::vector<BackendWrapper::MemPoolSegment> segments_of(const py::object& pool,
                                                        at::DeviceType type) {
  std::vector<BackendWrapper::MemPoolSegment> segments;
  for (const py::handle segment : pool.attr("snapshot")()) {
    const py::object device = segment["device"];
    segments.push_back({segment["address"].cast<uintptr_t>(), segment["total_size"].cast<size_t>(),
                        py::isinstance<py::int_>(device)
                            ? at::Device(type, device.cast<c10::DeviceIndex>())
                            : device.cast<at::Device>()});
  }
  return segments;
}

void bind_memory_pools(
    py::class_<BackendWrapper, c10d::Backend, c10::intrusive_ptr<BackendWrapper>>& wrapper) {
  wrapper
      .def(
          "register_mem_pool",
          [](BackendWrapper& self, const py::object& pool, bool symm) {
            constexpr const char* kMethod = "register_mem_pool";
            require_pool(kMethod, pool);
            if (symm)
              throw CommError(Errc::kUnsupported,
                              "symm=True, a symmetric registration, is not available for a pool: "
                              "leave symm out, or make a window of a tensor with new_window()",
                              {.op = kMethod});
            const auto type = self.getComm()->getDevice().type();
            const auto id = id_of(pool);
            const auto segments = segments_of(pool, type == at::kCPU ? at::kCUDA : type);
            const ScopedGilRelease released;
            self.registerMemPool(id, segments);
          },
          py::arg("pool"), py::arg("symm") = false,
          R"(Registers the current memory of a pool with the communicator's library.

Args:
    pool: torch.cuda.MemPool. A second call also registers memory that the pool has allocated since.
    symm: must be False.
Raises:
    Unsupported: symm is True, or the backend or its library registers no memory.
    InvalidArgument: the pool has memory of another device than the communicator's.
Does nothing for a communicator on the CPU.)")
      .def(
          "deregister_mem_pool",
          [](BackendWrapper& self, const py::object& pool) {
            require_pool("deregister_mem_pool", pool);
            const auto id = id_of(pool);
            const ScopedGilRelease released;
            self.deregisterMemPool(id);
          },
          py::arg("pool"),
          "Undoes register_mem_pool(). Call it before the pool frees its memory. Does nothing for "
          "a pool that is not registered.");
}

}  // namespace

void bind_interop(py::module_& module) {
  // This import registers the base classes; torch has loaded the module already.
  py::module_::import("torch._C._distributed_c10d");

  // Callbacks that torch runs need the GIL, and must not be unwound when the interpreter ends.
  set_callback_check(&ScopedGilRelease::block_if_finalizing);
  py::module_::import("atexit").attr("register")(py::cpp_function(
      [] { close_callbacks(std::chrono::seconds(5)); }, py::call_guard<ScopedGilRelease>()));

  py::class_<WorkWrapper, c10d::Work, c10::intrusive_ptr<WorkWrapper>> work(
      module, "WorkWrapper", "The work of a call on a process group.");
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
      R"(Adapts a communicator to a backend of torch.distributed's process groups.

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
           "The allocator of the communicator's backend. Raises Unsupported if the backend has "
           "none.")
      .def_property_readonly("options", &BackendWrapper::getBackendOptions,
                             "Options as torch.distributed shows them; backend is 'torchcomms'.")
      .def("_set_default_timeout", &BackendWrapper::setTimeout, py::arg("timeout"),
           "Sets the timeout of later calls that have none of their own.")
      .def(
          "perform_nocolor_split", [](const BackendWrapper&, const at::Device&) {},
          py::arg("device"),
          "torch.distributed.new_group calls this on ranks outside of a group. It does nothing, "
          "because the members connect by themselves.")
      .def_static(
          "_verify_work_timeout",
          [](const c10::intrusive_ptr<c10d::Work>& work, std::chrono::milliseconds timeout) {
            const auto* own = dynamic_cast<const WorkWrapper*>(work.get());
            return own != nullptr && own->getTimeout() == timeout;
          },
          py::arg("work"), py::arg("timeout"),
          "True if `work` is a work of torchcomms with this timeout; a work without a timeout has "
          "the maximum.");
  bind_memory_pools(wrapper);
}

}  // namespace torch::comms::bindings
