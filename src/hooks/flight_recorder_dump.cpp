#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <torchcomms/hooks/flight_recorder.hpp>

#include "hooks/document_writer.hpp"

namespace torch::comms::fr {
namespace {

// The version of the layout, as PyTorch's trace analyzer counts it.
constexpr const char* kVersion = "2.10";

const char* name(EntryState state) {
  switch (state) {
    case EntryState::kScheduled:
      return "scheduled";
    case EntryState::kStarted:
      return "started";
    case EntryState::kCompleted:
      return "completed";
  }
  return "";
}

std::string list_text(const std::vector<int>& ranks) {
  std::string text = "[";
  for (const int rank : ranks) text += (text.size() > 1 ? "," : "") + std::to_string(rank);
  return text + "]";
}

void write_sizes(DocumentWriter& out, const std::vector<std::vector<int64_t>>& tensors) {
  out.begin_list();
  for (const auto& sizes : tensors) {
    out.begin_list();
    for (const int64_t size : sizes) out.number(size);
    out.end_list();
  }
  out.end_list();
}

void write_dtypes(DocumentWriter& out, const std::vector<c10::ScalarType>& dtypes) {
  out.begin_list();
  for (const auto dtype : dtypes) out.text(c10::toString(dtype));
  out.end_list();
}

void write_entry(DocumentWriter& out, const Entry& entry, uint64_t record_id) {
  const auto number = [&out](const char* key, auto value) {
    out.key(key);
    out.number(static_cast<int64_t>(value));
  };
  const auto text = [&out](const char* key, std::string_view value) {
    out.key(key);
    out.text(value);
  };
  const auto time = [&out](const char* key, int64_t value_ns) {
    out.key(key);
    out.time(value_ns);
  };
  const auto flag = [&out](const char* key, bool value) {
    out.key(key);
    out.flag(value);
  };
  out.begin_map();
  number("record_id", record_id);
  number("pg_id", entry.group->id);
  out.key("process_group");
  out.pair(entry.group->name, entry.group->backend);
  text("thread_name", entry.thread_name);
  number("thread_id", entry.thread);
  number("collective_seq_id", entry.sequence);
  number("p2p_seq_id", 0);
  number("op_id", entry.op_id);
  text("profiling_name", entry.profiling_name);
  number("time_created_ns", entry.created_ns);
  if (entry.retired) {
    out.key("duration_ms");
    const int64_t begin = entry.started_ns != 0 ? entry.started_ns : entry.created_ns;
    out.real(static_cast<double>(std::max<int64_t>(entry.completed_ns - begin, 1)) / 1e6);
  }
  out.key("input_sizes");
  write_sizes(out, entry.input_sizes);
  out.key("output_sizes");
  write_sizes(out, entry.output_sizes);
  out.key("input_dtypes");
  write_dtypes(out, entry.input_dtypes);
  out.key("output_dtypes");
  write_dtypes(out, entry.output_dtypes);
  text("state", name(entry.state));
  time("time_discovered_started_ns", entry.started_ns);
  time("time_discovered_completed_ns", entry.completed_ns);
  flag("retired", entry.retired);
  number("timeout_ms", entry.timeout_ms);
  flag("is_p2p", false);
  // These fields extend PyTorch's layout for the analyzer of torchcomms.
  text("operation", opToString(entry.op));
  flag("failed", entry.failed);
  if (entry.refused) flag("refused", true);
  if (entry.reduce_op) text("reduce_op", toString(*entry.reduce_op));
  if (entry.root >= 0) number("root", entry.root);
  if (entry.peer >= 0) number("peer", entry.peer);
  out.end_map();
}

}  // namespace

void FlightRecorder::write_groups(DocumentWriter& out,
                                  const std::vector<const Entry*>& entries) const {
  // The dump contains groups that still exist and groups of the entries. Of two groups with one
  // name, the newer one is used.
  std::map<uint64_t, std::shared_ptr<const RecordedGroup>> by_id;
  for (const auto& weak : groups_)
    if (auto group = weak.lock()) by_id.emplace(group->id, std::move(group));
  for (const Entry* entry : entries) by_id.emplace(entry->group->id, entry->group);
  std::map<std::string, const RecordedGroup*> by_name;
  for (const auto& [id, group] : by_id) by_name[group->name] = group.get();

  out.key("pg_config");
  out.begin_map();
  for (const auto& [name, group] : by_name) {
    out.key(name);
    out.begin_map();
    out.key("name");
    out.text(name);
    out.key("desc");
    out.text(group->backend);
    out.key("ranks");
    out.text(list_text(group->ranks));
    out.end_map();
  }
  out.end_map();
  out.key("pg_status");
  out.begin_map();
  for (const auto& [id, group] : by_id) {
    out.key(std::to_string(id));
    out.begin_map();
    for (const auto& [key, value] :
         {std::pair("last_enqueued_collective", group->last_enqueued),
          std::pair("last_started_collective", group->last_started),
          std::pair("last_completed_collective", group->last_completed)}) {
      out.key(key);
      out.text(std::to_string(value));
    }
    out.end_map();
  }
  out.end_map();
}

void FlightRecorder::write(DocumentWriter& out, bool include_completed, bool include_entries,
                           bool even_if_empty) const {
  const auto rank = global_rank();
  std::lock_guard lock(mutex_);
  const uint64_t kept =
      include_entries ? std::min<uint64_t>(next_id_ - first_id_, max_entries_) : 0;
  std::vector<const Entry*> entries;
  std::vector<uint64_t> record_ids;
  for (uint64_t id = next_id_ - kept; id < next_id_; ++id) {
    const Entry& entry = ring_[id % max_entries_];
    if (entry.retired && !include_completed) continue;
    entries.push_back(&entry);
    record_ids.push_back(id - first_id_);
  }
  out.begin_map();
  out.key("version");
  out.text(kVersion);
  out.key("comm_lib_version");
  out.text(TORCHCOMMS_VERSION);
  if (rank) {
    out.key("global_rank");
    out.number(*rank);
  }
  write_groups(out, entries);
  if (!entries.empty() || even_if_empty) {
    out.key("entries");
    out.begin_list();
    for (size_t i = 0; i < entries.size(); ++i) write_entry(out, *entries[i], record_ids[i]);
    out.end_list();
  }
  out.end_map();
}

std::string FlightRecorder::dump_json(bool include_completed, bool include_entries) const {
  JsonWriter out;
  write(out, include_completed, include_entries, false);
  return out.finish();
}

std::string FlightRecorder::dump_pickle(bool include_completed, bool include_entries) const {
  PickleWriter out;
  write(out, include_completed, include_entries,
        true);  // PyTorch's analyzer requires them in files
  return out.finish();
}

}  // namespace torch::comms::fr
