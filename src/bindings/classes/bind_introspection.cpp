#include <algorithm>
#include <vector>

#include <pybind11/stl.h>

#include <c10/core/ScalarType.h>

#include <torchcomms/base/launcher.hpp>
#include <torchcomms/types.hpp>

#include "base/os/env.hpp"
#include "base/text/utf8.hpp"
#include "bindings/bindings.hpp"
#include "core/observe/operation_record.hpp"
#include "core/options/dtype_name.hpp"
#include "tracing/recorder.hpp"
#include "tracing/recorder_space.hpp"

namespace torch::comms::bindings {
namespace {

py::object name_of_dtype(uint8_t dtype) {
  if (dtype == base::kNone) return py::none();
  return py::str(dtype_name(static_cast<c10::ScalarType>(dtype)));
}

py::object reduce_op_name(uint8_t op) {
  if (op == base::kNone) return py::none();
  return py::str(std::string(toString(static_cast<RedOpType>(op))));
}

// Returns: the path decoded like os.fsdecode(), because a path may be invalid UTF-8.
py::str path_text(const std::string& path) {
  auto* text = PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<py::ssize_t>(path.size()));
  if (text == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(text);
}

py::list read_events() {
  py::list list;
  for (const auto& [index, event] : tracing::process_ring().read()) {
    const base::OpRecord& op = event.op;
    py::dict row;
    row["seq"] = index;
    row["phase"] = event.phase == tracing::EventPhase::kBegin ? "begin" : "end";
    row["ok"] = event.ok;
    row["op"] = std::string(opToString(static_cast<OpName>(op.kind)));
    row["comm"] = base::replace_invalid_utf8(tracing::process_ring().communicator_name(op.comm));
    row["comm_seq"] = op.sequence;
    row["op_id"] = op.op_id;
    row["async_op"] = op.async_op;
    row["dtype"] = name_of_dtype(op.dtype);
    row["reduce_op"] = reduce_op_name(op.reduce_op);
    row["root_or_peer"] =
        op.root_or_peer < 0 ? py::object(py::none()) : py::object(py::int_(op.root_or_peer));
    row["numel"] = std::max(op.elements_in, op.elements_out);
    row["numel_in"] = op.elements_in;
    row["numel_out"] = op.elements_out;
    row["bytes"] = op.bytes;
    row["time_ns"] = event.time_ns;
    row["thread"] = event.thread;
    list.append(row);
  }
  return list;
}

py::list list_launchers() {
  py::list list;
  for (const auto& launcher : launchers()) {
    py::dict row;
    row["name"] = launcher.name;
    row["methods"] = launcher.methods;
    row["rank"] = launcher.rank;
    row["sizes"] = launcher.sizes;
    list.append(row);
  }
  return list;
}

}  // namespace

void bind_introspection(py::module_& module) {
  module.def("_read_events", &read_events, "list[dict]: the process's event ring, oldest first.");
  module.def(
      "_event_ring",
      [] {
        const auto& ring = tracing::process_ring();
        py::dict row;
        row["capacity"] = ring.capacity();
        row["recorded"] = ring.recorded();
        row["skipped"] = ring.skipped();
        row["file"] = path_text(tracing::recorder_file());
        row["why_in_memory"] = path_text(tracing::in_memory_reason());
        return row;
      },
      "dict: capacity of the event ring, events recorded so far, events skipped, the file it lies "
      "in, '' for none, and why it lies in memory where a file was wanted.");
  module.def(
      "_recorder_rooms",
      [] {
        py::list rows;
        for (const auto& room : tracing::recorder_spaces()) {
          py::dict row;
          row["folder"] = path_text(room.folder);
          row["ring_bytes"] = room.ring_bytes;
          row["most_bytes"] = room.max_bytes;
          row["available_bytes"] = room.available_bytes;
          row["owned_bytes"] = room.owned_bytes;
          row["left_bytes"] = room.orphaned_bytes;
          row["more_rings"] = room.fitting_rings;
          row["why_none"] = path_text(room.unavailable_reason);
          rows.append(row);
        }
        return rows;
      },
      "list[dict]: for each folder of _recorder_folders(), what files of event rings take there, "
      "may take, and for how many more processes there is room.");
  module.def(
      "_record_process",
      [] {
        tracing::record_process(record_vocabulary());
        return path_text(tracing::recorder_file());
      },
      "str: the file of this process's event ring, which it gets now if it has none yet; '' where "
      "there can be none.");
  module.def(
      "_offer_stacks",
      [](int signal, int descriptor) {
        auto& header = tracing::process_ring().header();
        header.stack_descriptor.store(descriptor);
        header.stack_signal.store(signal);
      },
      py::arg("signal"), py::arg("descriptor"),
      "Notes in the event ring that `signal` makes this process write its stacks to `descriptor`.");
  module.def(
      "_recorder_folders",
      [] {
        std::vector<py::str> list;
        for (const auto& folder : tracing::recorder_directories())
          list.push_back(path_text(folder));
        return list;
      },
      "list[str]: where processes of this environment put their event rings, the first that "
      "works; empty where they stay in memory.");
  module.def(
      "_dtype_words",
      [] {
        py::dict names;
        for (int i = 0; i < static_cast<int>(c10::ScalarType::Undefined); ++i) {
          const auto dtype = static_cast<c10::ScalarType>(i);
          names[py::str(dtype_name(dtype))] = c10::toString(dtype);
        }
        return names;
      },
      "dict[str, str]: the flight recorder's name of each dtype by its name in torch: 'Float' by "
      "'float32'.");
  module.def("_launchers", &list_launchers,
             "list[dict]: the known launchers, in the order in which they are checked: name, "
             "methods of the selector, and the variables of rank and size.");
  module.def(
      "_environment",
      [] {
        py::list rows;
        for (const auto& variable : base::environment()) {
          py::dict row;
          row["name"] = variable.name;
          row["type"] = variable.type;
          row["default"] = variable.default_text;
          row["doc"] = variable.doc;
          rows.append(row);
        }
        return rows;
      },
      "list[dict]: every environment variable the library reads: name, type, default, doc.");
  module.def(
      "_check_variable",
      [](const std::string& name) {
        for (const auto& variable : base::environment())
          if (variable.name == name) base::validate_env_var(variable);
      },
      py::arg("name"),
      "Raises InvalidArgument if the library would do so for the text of a variable.");
}

}  // namespace torch::comms::bindings
