#include <pybind11/stl.h>

#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>

#include "bindings/arguments/arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/deleted_constructors.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"
#include "bindings/python_backend/py_hooks.hpp"
#include "core/options/dtype_name.hpp"

namespace torch::comms::bindings {
namespace {

using OptionalHints = std::optional<Hints>;

py::dict describe_options(const CommOptions& options) {
  py::dict row;
  row["timeout_s"] = static_cast<double>(options.timeout.count()) / 1000.0;
  row["abort_process_on_timeout_or_error"] = options.abort_process_on_timeout_or_error;
  row["hints"] = options.hints;
  return row;
}

py::dict describe_capabilities(const Capabilities& capabilities) {
  py::list operations, dtypes, reduce_ops, devices;
  for (int i = 0; i < kOpNameCount; ++i)
    if (const auto op = static_cast<OpName>(i); capabilities.has(op))
      operations.append(std::string(opToString(op)));
  for (size_t i = 0; i < capabilities.dtypes.size(); ++i)
    if (capabilities.dtypes.test(i)) dtypes.append(dtype_name(static_cast<c10::ScalarType>(i)));
  for (size_t i = 0; i < capabilities.reduce_ops.size(); ++i)
    if (capabilities.reduce_ops.test(i))
      reduce_ops.append(std::string(toString(static_cast<RedOpType>(i))));
  for (size_t i = 0; i < capabilities.devices.size(); ++i)
    if (capabilities.devices.test(i))
      devices.append(c10::DeviceTypeName(static_cast<c10::DeviceType>(i), true));
  py::dict row;
  row["operations"] = operations;
  row["dtypes"] = dtypes;
  row["reduce_ops"] = reduce_ops;
  row["devices"] = devices;
  row["abort"] = capabilities.abort;
  row["reconfigure"] = capabilities.reconfigure;
  row["windows"] = capabilities.windows;
  row["graph_capture"] = capabilities.graph_capture;
  row["staging"] = capabilities.staging;
  return row;
}

py::dict describe_init(const TorchCommBackend& backend) {
  py::list phases;
  double total = 0;
  for (const auto& [name, milliseconds] : backend.initPhases()) {
    py::dict phase;
    phase["name"] = name;
    phase["ms"] = milliseconds;
    phases.append(phase);
    total += milliseconds;
  }
  py::dict row;
  row["phases"] = phases;
  row["total_ms"] = total;
  return row;
}

py::dict describe_algorithms(const std::vector<TorchCommBackend::AlgorithmRange>& ranges) {
  py::dict rows;
  for (const auto& range : ranges) {
    py::dict row;
    row["bytes_from"] = range.bytes_from;
    row["algorithm"] = range.algorithm;
    row["chunk_bytes"] = range.chunk_bytes;
    row["why"] = range.why;
    const py::str operation{std::string(opToString(range.operation))};
    if (!rows.contains(operation)) rows[operation] = py::list();
    rows[operation].cast<py::list>().append(row);
  }
  return rows;
}

py::dict describe(const TorchComm& comm) {
  py::dict row;
  row["name"] = std::string(comm.getCommName());
  row["backend"] = comm.getBackend();
  row["device"] = comm.getDevice().str();
  row["rank"] = comm.isConnected() ? comm.getRank() : -1;
  row["size"] = comm.isConnected() ? comm.getSize() : -1;
  row["ranks"] = comm.getRanks();
  row["options"] = describe_options(comm.getOptions());
  row["capabilities"] = describe_capabilities(comm.capabilities());
  row["init"] = describe_init(*comm.getBackendImpl());
  const auto facts = comm.getBackendFacts();
  row["links"] = facts.links;
  row["algorithms"] = describe_algorithms(facts.algorithms);
  row["memory"] = facts.memory;
  row["notes"] = facts.notes;
  return row;
}

// Sets the options that the caller gave; the others keep their values.
template <class Options>
void apply_call_options(Options& options, const char* method, const OptionalHints& hints,
                        std::optional<TimeoutArg>& timeout) {
  if (hints) options.hints = *hints;
  if (!timeout) return;
  options.timeout = timeout->get({method, "timeout"});
  if constexpr (requires { options.timeout_is_given; }) options.timeout_is_given = true;
}

void bind_life(py::class_<TorchComm, std::shared_ptr<TorchComm>>& comm) {
  comm.def("finalize", &TorchComm::finalize, ReleaseGil(),
           R"(Releases the communicator's resources. A local call, not a barrier.

Raises CommFinalized on a second call (not for `fake` and Python backends), and the error of pending failed work.)")
      .def("get_rank", &TorchComm::getRank, ReleaseGil(),
           R"(This process's rank, 0 to get_size() - 1.

Before reconfigure(): -1 on gloo and ctran; raises CommFinalized on nccl and the backends derived from it.)")
      .def("get_size", &TorchComm::getSize, ReleaseGil(),
           "Number of ranks. Before reconfigure(): as get_rank().")
      .def("get_ranks", &TorchComm::getRanks, ReleaseGil(),
           "Global ranks of the members, in rank order.")
      .def("get_name", &TorchComm::getCommName, ReleaseGil(), "The name given at creation.")
      .def("get_device", &TorchComm::getDevice, ReleaseGil(), "The resolved torch.device.")
      .def("get_backend", &TorchComm::getBackend, "The backend name given to new_comm.")
      .def("get_backend_version", &TorchComm::getBackendVersion, ReleaseGil(),
           "Version text of the backend's library. Raises Unsupported if the backend has none.")
      .def(
          "get_options",
          [](const TorchComm& self) {
            CommOptions options = self.getOptions();
            options.store.reset();
            return options;
          },
          "A fresh copy of the effective CommOptions; `store` reads None.")
      .def("get_backend_impl", &TorchComm::getBackendImpl,
           "The backend object, for backend-specific methods.")
      .def(
          "unsafe_get_backend",
          [](const TorchComm& self) {
            if (PyErr_WarnEx(PyExc_DeprecationWarning,
                             "unsafe_get_backend is deprecated; use get_backend_impl", 1) != 0)
              throw py::error_already_set();
            return self.getBackendImpl();
          },
          "Deprecated name of get_backend_impl().")
      .def("describe", &describe,
           "dict: name, backend, device, rank, size, ranks, options, capabilities, duration of "
           "each start-up phase; if the backend reports them, also the link to each rank, the "
           "algorithms of each operation by size, bytes of device memory by purpose, and further "
           "notes by topic.")
      .def("__copy__", [](py::object self) { return self; })
      .def(
          "__deepcopy__",
          [](py::object self, const py::dict& memo) {
            memo[py::int_(reinterpret_cast<uintptr_t>(self.ptr()))] = self;
            return self;
          },
          py::arg("memo"));
  def_repr(comm);
}

void bind_groups(py::class_<TorchComm, std::shared_ptr<TorchComm>>& comm) {
  comm.def("batch_op_create", &TorchComm::batch_op_create,
           "Creates an empty BatchSendRecv, which keeps this communicator alive.")
      .def(
          "_split",
          [](TorchComm& self, const std::vector<int>& ranks, const std::string& name,
             const OptionalHints& hints, std::optional<TimeoutArg> timeout) {
            CommOptions options;
            apply_call_options(options, "split", hints, timeout);
            ScopedGilRelease released;
            return self.split(ranks, name, options);
          },
          py::arg("ranks"), py::arg("name"), py::arg("hints") = py::none(),
          py::arg("timeout") = py::none(), "Implements split(), with all arguments given.");
}

// Returns: the tag of a program's message. Throws: CommError(kInvalidArgument) for tags that are
// reserved for the library.
int of_program(const char* op, int tag) {
  if (tag > kLargestTag)
    throw CommError(
        Errc::kInvalidArgument,
        "tag is " + std::to_string(tag) + ", allowed is 0 to " + std::to_string(kLargestTag),
        {.op = op});
  return tag;
}

// Binds send and receive with tags, which torch.distributed has and the public operations do not
// have.
void bind_tagged_messages(py::class_<TorchComm, std::shared_ptr<TorchComm>>& comm) {
  comm.def(
          "_send_tagged",
          [](TorchComm& self, const at::Tensor& tensor, int dst, int tag, bool async_op) {
            SendOptions options;
            options.tag = of_program("send", tag);
            return self.send(tensor, dst, async_op, options);
          },
          ReleaseGil(), py::arg("tensor"), py::arg("dst"), py::arg("tag"), py::arg("async_op"),
          "send() of a message that also matches by its tag, if the backend has tags.")
      .def(
          "_recv_tagged",
          [](TorchComm& self, at::Tensor tensor, int src, int tag, bool async_op) {
            RecvOptions options;
            options.tag = of_program("recv", tag);
            return self.recv(tensor, src, async_op, options);
          },
          ReleaseGil(), py::arg("tensor"), py::arg("src"), py::arg("tag"), py::arg("async_op"),
          "recv() of a message that also matches by its tag, if the backend has tags.");
}

void bind_hooks_of(py::class_<TorchComm, std::shared_ptr<TorchComm>>& comm) {
  comm.def(
          "register_pre_hook",
          [](TorchComm& self, Arg<py::function> callback) {
            return self.registerPreHook(
                to_pre_hook(callback.get({"register_pre_hook", "callback"})));
          },
          py::arg("callback"),
          "Calls `callback(name: OpName, op_id: int, args)` before each operation, in order of "
          "registration.")
      .def(
          "register_post_hook",
          [](TorchComm& self, Arg<py::function> callback) {
            return self.registerPostHook(
                to_post_hook(callback.get({"register_post_hook", "callback"})));
          },
          py::arg("callback"),
          "Calls `callback(op_id: int, args)` right after each operation was issued.")
      .def(
          "register_abort_hook",
          [](TorchComm& self, Arg<py::function> callback) {
            return self.registerAbortHook(
                to_abort_hook(callback.get({"register_abort_hook", "callback"})));
          },
          py::arg("callback"),
          "Calls `callback()` before the communicator is aborted for a timeout or an error.");
}

void bind_fault_tolerance(py::class_<TorchComm, std::shared_ptr<TorchComm>>& comm) {
  comm.def("get_init_handle", &TorchComm::getInitHandle, ReleaseGil(),
           "Text that identifies this member in reconfigure(); unchanged until the next "
           "reconfigure(). Raises Unsupported if the backend cannot reconfigure.")
      .def(
          "_reconfigure",
          [](TorchComm& self, int64_t uuid, decltype(ReconfigureOptions::handles) init_handles,
             std::optional<TimeoutArg> timeout, const OptionalHints& hints) {
            ReconfigureOptions options{uuid, std::move(init_handles),
                                       get_optional(timeout, {"reconfigure", "timeout"}),
                                       hints.value_or(Hints{})};
            ScopedGilRelease released;
            return self.reconfigure(options);
          },
          py::arg("uuid"), py::arg("init_handles"), py::arg("timeout") = py::none(),
          py::arg("hints") = py::none(),
          "Implements reconfigure(), with arguments of the right types.")
      .def("abort", &TorchComm::abort, ReleaseGil(),
           "Aborts operations in flight; every later operation raises. Raises Unsupported if the "
           "backend cannot abort. Any thread may call it.")
      .def("is_abort_supported", &TorchComm::isAbortSupported,
           "True if the backend supports abort().")
      .def("is_aborted", &TorchComm::isAborted,
           "True after an abort, timeout or error. Any thread may call it.")
      .def(
          "set_timeout",
          [](TorchComm& self, TimeoutArg timeout) {
            self.setTimeout(timeout.get({"set_timeout", "timeout"}));
          },
          ReleaseGil(), py::arg("timeout"),
          "Sets the default timeout of later operations. Raises Unsupported if the backend cannot "
          "change it.")
      .def("set_hints", &TorchComm::setHints, ReleaseGil(), py::arg("hints"),
           "Sets the default hints of later operations. Raises Unsupported if the backend cannot "
           "change them.");
}

void bind_memory(py::class_<TorchComm, std::shared_ptr<TorchComm>>& comm) {
  comm.def("get_mem_allocator", &TorchComm::getMemAllocator,
           "The backend's allocator. Raises Unsupported if the backend has none.")
      .def_property_readonly("mem_allocator", &TorchComm::getMemAllocator,
                             "Older name of get_mem_allocator().")
      .def(
          "tensor_register",
          [](TorchComm& self, const TensorArg& operand) { self.tensor_register(operand.tensor); },
          ReleaseGil(), py::arg("tensor"),
          "Registers the tensor's memory before it is used. Raises Unsupported if the backend has "
          "no registration.")
      .def("tensor_deregister", &TorchComm::tensor_deregister, ReleaseGil(), py::arg("tensor"),
           "Undoes tensor_register(). Raises Unsupported if the backend has no registration.")
      .def("get_device_transport", &TorchComm::get_device_transport, ReleaseGil(),
           "Address of a transport for kernels, in this rank's device memory. The first call is "
           "collective. Raises Unsupported if there is none.")
      .def(
          "new_window",
          [](TorchComm& self, const std::optional<TensorArg>& operand) {
            return self.new_window(operand ? std::optional(operand->tensor) : std::nullopt);
          },
          ReleaseGil(), py::arg("tensor") = py::none(),
          "Creates a window for one-sided access. With a tensor, the call is collective, like "
          "tensor_register(). Raises Unsupported if the backend has no windows.")
      .def(
          "window_allocate",
          [](TorchComm& self, Arg<uint64_t> size, bool cpu_buf,
             std::optional<Arg<uint64_t>> slots) {
            constexpr const char* kMethod = "window_allocate";
            const auto signal_size = get_optional(slots, {kMethod, "signal_size"});
            return self.window_allocate(size.get({kMethod, "window_size"}), cpu_buf, signal_size);
          },
          ReleaseGil(), py::arg("window_size"), py::arg("cpu_buf") = false,
          py::arg("signal_size") = py::none(),
          "Older form of new_window, collective: allocates `window_size` bytes (with `cpu_buf` "
          "host memory on every device) and `signal_size` slots, or 256. Raises Unsupported if the "
          "backend has no windows.");
}

void bind_persistent(py::module_& module, py::class_<TorchComm, std::shared_ptr<TorchComm>>& comm) {
  constexpr const char* kCapsule = "AllGatherPHandle";
  const auto unpack = [](const py::capsule& handle) {
    if (std::string_view(handle.name() ? handle.name() : "") != kCapsule)
      throw CommError(Errc::kInvalidArgument,
                      "the handle is not one that all_gather_p_init returned");
    return handle.get_pointer();
  };
  comm.def(
          "all_gather_p_init",
          [](TorchComm& self, at::Tensor output, const OptionalHints& hints,
             std::optional<TimeoutArg> timeout) {
            AllGatherPInitOptions options;
            apply_call_options(options, "all_gather_p_init", hints, timeout);
            TorchComm::AllGatherPHandle handle = [&] {
              ScopedGilRelease released;
              return self.all_gather_p_init(output, options);
            }();
            return py::capsule(handle, kCapsule);
          },
          py::arg("output"), py::arg("hints") = py::none(), py::arg("timeout") = py::none(),
          "Prepares a repeated all_gather into `output`. Raises Unsupported where the backend has "
          "none.")
      .def(
          "all_gather_p_exec",
          [unpack](TorchComm& self, const py::capsule& handle, const at::Tensor& input,
                   bool async_op, const OptionalHints& hints, std::optional<TimeoutArg> timeout) {
            AllGatherPExecOptions options;
            apply_call_options(options, "all_gather_p_exec", hints, timeout);
            void* pointer = unpack(handle);
            ScopedGilRelease released;
            return self.all_gather_p_exec(pointer, input, async_op, options);
          },
          py::arg("handle"), py::arg("input"), py::arg("async_op"), py::arg("hints") = py::none(),
          py::arg("timeout") = py::none(), "Runs a prepared all_gather.")
      .def(
          "all_gather_p_free",
          [unpack](TorchComm& self, const py::capsule& handle) {
            void* pointer = unpack(handle);
            ScopedGilRelease released;
            self.all_gather_p_free(pointer);
          },
          py::arg("handle"), "Releases a prepared all_gather.");
  // The class is local to this module, because torch registers its own allocators.
  const py::class_<c10::Allocator, std::shared_ptr<c10::Allocator>> allocator(
      module, "_Allocator", py::module_local(), "Memory that a backend's library allocates.");
  module.def("get_mem_allocator", &get_mem_allocator, py::arg("backend"),
             "The allocator of a loaded backend, for torch.cuda.MemPool. Raises Unsupported if the "
             "backend has none.");
}

}  // namespace

void bind_comm(py::module_& module) {
  py::class_<TorchComm, std::shared_ptr<TorchComm>> comm(
      module, "TorchComm", graph_metaclass(),
      R"(A group of ranks that communicate. torchcomms.new_comm() creates one.

Tensors must be contiguous, of one dtype, and on a device of the backend. Element counts must match; shapes
are not compared. Every operation returns a TorchWork, which is complete for a synchronous call. The caller
must serialize calls on one communicator; any thread may call abort() and is_aborted().)");
  def_no_constructor(comm, "torchcomms.new_comm(backend, device, name) makes one");
  bind_life(comm);
  bind_operations(module, comm);
  bind_groups(comm);
  bind_tagged_messages(comm);
  bind_hooks_of(comm);
  bind_fault_tolerance(comm);
  bind_memory(comm);
  bind_persistent(module, comm);

  module.def("_new_comm", &new_comm, ReleaseGil(), py::arg("backend"), py::arg("device"),
             py::arg("name"), py::arg("options"),
             "Implements new_comm(), with all arguments given.");
}

}  // namespace torch::comms::bindings
