#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>

#include <torchcomms/base/error.hpp>
#include <torchcomms/options.hpp>

#include "bindings/arguments/arg.hpp"
#include "bindings/bindings.hpp"
#include "bindings/classes/repr.hpp"

namespace torch::comms::bindings {
namespace {

// Returns: the fields of options in the order in which a pickle contains them. The store of
// CommOptions is not included, because it is a connection of this process.
template <class Options>
auto fields_of(Options& self) {
  using Kind = std::remove_const_t<Options>;
  if constexpr (std::is_same_v<Kind, CommOptions>)
    return std::tie(self.abort_process_on_timeout_or_error, self.timeout, self.timeout_is_given,
                    self.is_high_priority_stream, self.enable_reconfigure, self.name, self.hints);
  else if constexpr (std::is_same_v<Kind, ReconfigureOptions>)
    return std::tie(self.uuid, self.handles, self.timeout, self.hints);
  else if constexpr (std::is_same_v<Kind, SendOptions>)
    return std::tie(self.timeout, self.hints, self.tag);
  else if constexpr (std::is_same_v<Kind, RecvOptions>)
    return std::tie(self.timeout, self.hints, self.tag, self.any_source);
  else
    return std::tie(self.timeout, self.hints);
}

template <class... Fields>
std::tuple<std::remove_cvref_t<Fields>...> values_of(const std::tuple<Fields...>& fields) {
  return fields;
}

template <class Options>
void require_picklable([[maybe_unused]] const Options& options) {
  if constexpr (std::is_same_v<Options, CommOptions>)
    if (options.store != nullptr)
      throw CommError(Errc::kUnsupported,
                      "CommOptions with a store cannot be pickled: a store is a connection of this "
                      "process. Set store to None, and assign a store where the options arrive");
}

// Makes options picklable and copyable by value. Copies of CommOptions share the store.
template <class Options>
void def_pickle(py::class_<Options>& bound) {
  using State = decltype(values_of(fields_of(std::declval<Options&>())));
  bound.def(py::pickle(
      [](const Options& self) -> State {
        require_picklable(self);
        return values_of(fields_of(self));
      },
      [](const State& state) {
        Options options;
        fields_of(options) = state;
        return options;
      }));
  bound.def("__copy__", [](const Options& self) { return Options(self); })
      .def(
          "__deepcopy__", [](const Options& self, const py::dict&) { return Options(self); },
          py::arg("memo"));
}

template <class Options>
py::class_<Options> bind_operation_options(py::module_& module, const char* name, const char* doc) {
  py::class_<Options> bound(module, name, doc);
  bound.def(py::init<>())
      .def_property(
          "timeout", [](const Options& self) { return self.timeout; },
          [place = std::string(name) + ".timeout"](Options& self, TimeoutArg limit) {
            self.timeout = limit.get({place.c_str(), nullptr});
          },
          "timedelta; zero: the communicator's default.")
      .def_readwrite("hints", &Options::hints, "dict[str, str]; unknown keys are ignored.");
  def_repr(bound, [name = std::string(name)](const Options& self) {
    return bracketed(name, text_of(self.timeout, self.hints));
  });
  def_pickle(bound);
  return bound;
}

}  // namespace

void bind_options(py::module_& module) {
  py::class_<CommOptions> options(module, "CommOptions", R"(Options for creating a communicator.

The constructor reads TORCHCOMM_ABORT_ON_ERROR and TORCHCOMM_TIMEOUT_SECONDS each time, and raises
InvalidArgument naming a bad value.)");
  options.def(py::init<>())
      .def_readwrite("abort_process_on_timeout_or_error",
                     &CommOptions::abort_process_on_timeout_or_error,
                     "bool: whether an unobserved failure may terminate the process.")
      .def_property(
          "timeout", [](const CommOptions& self) { return self.timeout; },
          [](CommOptions& self, TimeoutArg limit) {
            self.timeout = limit.get({"CommOptions.timeout", nullptr});
            self.timeout_is_given = true;
          },
          "timedelta: per operation, and for start-up.")
      .def_readwrite("store", &CommOptions::store,
                     "Rendezvous store; None: found by rank discovery.")
      .def_readwrite("enable_reconfigure", &CommOptions::enable_reconfigure,
                     "bool: create without connecting; reconfigure() connects.")
      .def_readwrite("name", &CommOptions::name,
                     "str: used when new_comm is called without a name.")
      .def_readwrite("hints", &CommOptions::hints,
                     "dict[str, str]. Reading gives a copy: assign a dict to change it.");
  def_repr(options);
  def_pickle(options);

  bind_operation_options<SendOptions>(module, "SendOptions", "Options of send.")
      .def_readwrite("tag", &SendOptions::tag,
                     "Messages match by (peer, tag) if the backend has tags.");
  bind_operation_options<RecvOptions>(module, "RecvOptions", "Options of recv.")
      .def_readwrite("tag", &RecvOptions::tag,
                     "Messages match by (peer, tag) if the backend has tags.");
  bind_operation_options<BroadcastOptions>(module, "BroadcastOptions", "Options of broadcast.");
  bind_operation_options<AllReduceOptions>(module, "AllReduceOptions", "Options of all_reduce.");
  bind_operation_options<ReduceOptions>(module, "ReduceOptions", "Options of reduce.");
  bind_operation_options<AllGatherOptions>(module, "AllGatherOptions",
                                           "Options of all_gather and all_gather_v.");
  bind_operation_options<AllGatherSingleOptions>(module, "AllGatherSingleOptions",
                                                 "Options of all_gather_single.");
  bind_operation_options<ReduceScatterOptions>(module, "ReduceScatterOptions",
                                               "Options of reduce_scatter and reduce_scatter_v.");
  bind_operation_options<ReduceScatterSingleOptions>(module, "ReduceScatterSingleOptions",
                                                     "Options of reduce_scatter_single.");
  bind_operation_options<AllToAllOptions>(module, "AllToAllOptions", "Options of all_to_all.");
  bind_operation_options<AllToAllSingleOptions>(module, "AllToAllSingleOptions",
                                                "Options of all_to_all_single.");
  bind_operation_options<AllToAllvSingleOptions>(module, "AllToAllvSingleOptions",
                                                 "Options of all_to_all_v_single.");
  bind_operation_options<BarrierOptions>(module, "BarrierOptions", "Options of barrier.");
  bind_operation_options<ScatterOptions>(module, "ScatterOptions", "Options of scatter.");
  bind_operation_options<GatherOptions>(module, "GatherOptions", "Options of gather.");
  bind_operation_options<GatherSingleOptions>(module, "GatherSingleOptions",
                                              "Options of gather_single.");
  bind_operation_options<BatchP2POptions>(module, "BatchP2POptions",
                                          "Options of BatchSendRecv.issue.");
  bind_operation_options<AllGatherPInitOptions>(module, "AllGatherPInitOptions",
                                                "Options of all_gather_p_init.");
  bind_operation_options<AllGatherPExecOptions>(module, "AllGatherPExecOptions",
                                                "Options of all_gather_p_exec.");

  py::class_<ReconfigureOptions> members(
      module, "ReconfigureOptions",
      "The members after a reconfigure(), and its timeout and hints.");
  members.def(py::init<>())
      .def(py::init([](int64_t uuid, decltype(ReconfigureOptions::handles) handles,
                       std::optional<TimeoutArg> timeout, std::optional<Hints> hints) {
             ReconfigureOptions options;
             options.uuid = uuid;
             options.handles = std::move(handles);
             options.timeout = get_optional(timeout, {"ReconfigureOptions", "timeout"});
             if (hints) options.hints = std::move(*hints);
             return options;
           }),
           py::arg("uuid"), py::arg("init_handles"), py::arg("timeout") = py::none(),
           py::arg("hints") = py::none())
      .def_readwrite("uuid", &ReconfigureOptions::uuid,
                     "int: not used before on this communicator.")
      .def_readwrite("init_handles", &ReconfigureOptions::handles,
                     "list: in rank order; set: the backend chooses the order.")
      .def_property(
          "timeout", [](const ReconfigureOptions& self) { return self.timeout; },
          [](ReconfigureOptions& self, std::optional<TimeoutArg> limit) {
            self.timeout = get_optional(limit, {"ReconfigureOptions.timeout", nullptr});
          },
          "timedelta or None.")
      .def_readwrite("hints", &ReconfigureOptions::hints, "dict[str, str].");
  def_repr(members);
  def_pickle(members);
}

}  // namespace torch::comms::bindings
