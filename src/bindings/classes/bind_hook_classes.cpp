#include <pybind11/stl.h>

#include <torchcomms/hooks/clog.hpp>
#include <torchcomms/hooks/flight_recorder.hpp>
#include <torchcomms/hooks/nan_check.hpp>

#include "bindings/arguments/typed_arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"

namespace torch::comms::bindings {
namespace {

constexpr const char* kRegister =
    "Observes `comm` from now on, and its splits, also when this object is gone.";
// Implements register_with_comm() of every hook class.
template <class Hook>
void register_with_comm(Hook& hook, const TypedArg<std::shared_ptr<TorchComm>>& wanted) {
  const auto comm = wanted.as({"register_with_comm", "comm"}, "torchcomms.TorchComm");
  const ScopedGilRelease released;
  hook.registerWithComm(comm);
}

constexpr const char* kUnregister = "Ends that for all communicators. Idempotent.";

void bind_flight_recorder(const py::module_& module) {
  using fr::FlightRecorderHook;
  py::class_<FlightRecorderHook> recorder(
      module, "FlightRecorderHook",
      R"(Keeps what communicators were asked to do, in a bounded ring.

With isolated=True the ring is the object's own, of `max_entries`, and the next operation id becomes 0.
Otherwise all objects share one of TORCHCOMM_FR_BUFFER_SIZE entries. Never fails an operation.)");
  recorder.def(py::init<size_t, bool>(), py::arg("max_entries") = 2048, py::arg("isolated") = false)
      .def("register_with_comm", &register_with_comm<FlightRecorderHook>, py::arg("comm"),
           kRegister)
      .def("unregister", &FlightRecorderHook::unregister, ReleaseGil(), kUnregister)
      .def("dump_json", &FlightRecorderHook::dump_json, ReleaseGil(),
           py::arg("include_completed") = true,
           "The ring as JSON; without retired entries on demand.")
      .def("dump_file", &FlightRecorderHook::dump_file, ReleaseGil(), py::arg("rank"),
           py::arg("include_completed") = true,
           "The same as a pickle, in the file of TORCHCOMM_FR_DUMP_TEMP_FILE and `rank`. A file "
           "that cannot be written is logged.")
      .def("reset", &FlightRecorderHook::reset, ReleaseGil(), "Forgets all entries.")
      .def("is_enabled", &FlightRecorderHook::isEnabled, "Whether a communicator was registered.")
      .def("size", &FlightRecorderHook::size,
           "Entries recorded since the creation or the last reset(), overwritten ones included.")
      .def("__len__", &FlightRecorderHook::size);
  def_repr(recorder, [](const FlightRecorderHook& self) {
    return bracketed("FlightRecorderHook", "of " + std::to_string(self.size()) + " entries");
  });
}

void bind_clog(const py::module_& module) {
  py::class_<ClogHook>(module, "clog", R"(A call log: one line of text a call, in a file.

`events`: "LIFECYCLE" or "ALL" add lines of start, end and wait; `verbose`: "buffers" adds addresses.
Raises CommError where the file cannot be opened.)")
      .def(py::init<const std::string&, const std::vector<std::string>&,
                    const std::vector<std::string>&>(),
           py::arg("output"), py::arg("events"), py::arg("verbose") = std::vector<std::string>())
      .def("register_with_comm", &register_with_comm<ClogHook>, py::arg("comm"), kRegister)
      .def("unregister", &ClogHook::unregister, ReleaseGil(), kUnregister);
}

void bind_nan_check(const py::module_& module) {
  py::class_<NanCheckHook>(module, "NanCheckHook", R"(Refuses operations on tensors that hold a NaN.

Raises InvalidArgument naming operation, communicator and input or output, before anything is sent.)")
      .def(py::init<bool, bool>(), py::arg("check_inputs") = true, py::arg("check_outputs") = false)
      .def("register_with_comm", &register_with_comm<NanCheckHook>, py::arg("comm"),
           "Checks the operations of `comm` from now on, also when this object is gone.")
      .def("unregister", &NanCheckHook::unregister, ReleaseGil(), kUnregister)
      .def("is_enabled", &NanCheckHook::isEnabled, "Whether a communicator was registered.");
}

}  // namespace

void bind_hook_classes(py::module_& module) {
  auto hooks = module.def_submodule("hooks", "Observers of communicators.");
  bind_flight_recorder(hooks.def_submodule("fr", "The flight recorder."));
  bind_clog(hooks.def_submodule("clog", "The call log."));
  bind_nan_check(hooks.def_submodule("nan_check", "The check for NaNs."));
}

}  // namespace torch::comms::bindings
