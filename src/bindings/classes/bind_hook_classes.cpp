#include <pybind11/stl.h>

#include <torchcomms/hooks/clog.hpp>
#include <torchcomms/hooks/flight_recorder.hpp>
#include <torchcomms/hooks/nan_check.hpp>

#include "bindings/arguments/arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/repr.hpp"
#include "bindings/gil.hpp"

namespace torch::comms::bindings {
namespace {

constexpr const char* kRegister =
    "Observes `comm` and its splits from now on, also after this object is deleted.";
// Implements register_with_comm() of every hook class.
template <class Hook>
void register_with_comm(Hook& hook, Arg<std::shared_ptr<TorchComm>> given) {
  const auto comm = given.get({"register_with_comm", "comm"});
  const ScopedGilRelease released;
  hook.registerWithComm(comm);
}

constexpr const char* kUnregister = "Unregisters from all communicators. Idempotent.";

void bind_flight_recorder(const py::module_& module) {
  using fr::FlightRecorderHook;
  py::class_<FlightRecorderHook> recorder(
      module, "FlightRecorderHook",
      R"(Records the operations of communicators in a ring of bounded size.

With isolated=True, this object has a ring of its own with `max_entries`, and the next operation id becomes 0.
Otherwise all objects share one ring of TORCHCOMM_FR_BUFFER_SIZE entries. Never fails an operation.)");
  recorder.def(py::init<size_t, bool>(), py::arg("max_entries") = 2048, py::arg("isolated") = false)
      .def("register_with_comm", &register_with_comm<FlightRecorderHook>, py::arg("comm"),
           kRegister)
      .def("unregister", &FlightRecorderHook::unregister, ReleaseGil(), kUnregister)
      .def("dump_json", &FlightRecorderHook::dump_json, ReleaseGil(),
           py::arg("include_completed") = true,
           "The ring as JSON, optionally without retired entries.")
      .def("dump_file", &FlightRecorderHook::dump_file, ReleaseGil(), py::arg("rank"),
           py::arg("include_completed") = true,
           "Writes the ring as a pickle to the file named by TORCHCOMM_FR_DUMP_TEMP_FILE and "
           "`rank`. A failure to write is logged.")
      .def("reset", &FlightRecorderHook::reset, ReleaseGil(), "Removes all entries.")
      .def("is_enabled", &FlightRecorderHook::isEnabled, "Whether a communicator was registered.")
      .def("size", &FlightRecorderHook::size,
           "Entries recorded since the creation or the last reset(), overwritten ones included.")
      .def("__len__", &FlightRecorderHook::size);
  def_repr(recorder, [](const FlightRecorderHook& self) {
    return bracketed("FlightRecorderHook", "of " + std::to_string(self.size()) + " entries");
  });
}

void bind_clog(const py::module_& module) {
  py::class_<ClogHook>(module, "clog", R"(Writes one line of text per call to a file.

`events`: "LIFECYCLE" or "ALL" add lines of start, end and wait; `verbose`: "buffers" adds addresses.
Raises CommError if the file cannot be opened.)")
      .def(py::init<const std::string&, const std::vector<std::string>&,
                    const std::vector<std::string>&>(),
           py::arg("output"), py::arg("events"), py::arg("verbose") = std::vector<std::string>())
      .def("register_with_comm", &register_with_comm<ClogHook>, py::arg("comm"), kRegister)
      .def("unregister", &ClogHook::unregister, ReleaseGil(), kUnregister);
}

void bind_nan_check(const py::module_& module) {
  py::class_<NanCheckHook>(module, "NanCheckHook",
                           R"(Rejects operations on tensors that contain a NaN.

Raises InvalidArgument naming operation, communicator and input or output, before anything is sent.)")
      .def(py::init<bool, bool>(), py::arg("check_inputs") = true, py::arg("check_outputs") = false)
      .def("register_with_comm", &register_with_comm<NanCheckHook>, py::arg("comm"),
           "Checks the operations of `comm` from now on, also after this object is deleted.")
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
