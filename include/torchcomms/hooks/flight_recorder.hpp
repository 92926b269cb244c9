#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/core/ScalarType.h>
#include <torchcomms/comm.hpp>

// The flight recorder: it records the operations of communicators in a form that PyTorch's flight
// recorder tools read.
namespace torch::comms::fr {

class DocumentWriter;

// A communicator that is recorded. The recorder that created it changes its members.
struct RecordedGroup {
  uint64_t id = 0;         // number of communicators that were registered before
  std::string name;        // name of the communicator
  std::string backend;     // shown as the description of the group
  std::vector<int> ranks;  // global, in rank order; empty while not connected
  int rank = -1;           // rank of this process in it; -1 while not connected
  // Sequence numbers of the last collective that was issued, has started and has completed; 0:
  // none.
  uint64_t last_enqueued = 0, last_started = 0, last_completed = 0;
};

// The state of a recorded operation.
enum class EntryState : uint8_t { kScheduled, kStarted, kCompleted };

// One recorded operation.
struct Entry {
  std::shared_ptr<RecordedGroup> group;
  OpName op = OpName::barrier;
  std::string profiling_name;  // "<backend>:<op>"; for messages also " 0->1" or " 1<-0"
  uint64_t sequence = 0;       // equal on all ranks that take part; collectives count from 1
  uint64_t op_id = 0;          // the operation id that hooks receive
  uint32_t thread = 0;
  std::string thread_name;
  std::vector<std::vector<int64_t>> input_sizes, output_sizes;
  std::vector<c10::ScalarType> input_dtypes, output_dtypes;
  std::optional<RedOpType> reduce_op;
  int root = -1, peer = -1;  // -1: none
  int64_t timeout_ms = 0;

  EntryState state = EntryState::kScheduled;
  bool retired = false;  // the call returned and the operation completed
  bool failed = false;   // the call threw, or the operation ended in an error
  // A hook threw before anything was sent, and the next operation gets the sequence number;
  // `failed` is set, too.
  bool refused = false;
  int64_t created_ns = 0, started_ns = 0, completed_ns = 0;  // wall clock; 0: not known
};

// Keeps the last `max_entries` operations; 0 records nothing. Memory is allocated as entries
// arrive.
// Throws: get() throws CommError; the other methods fail only for lack of memory.
// Threads: any.
class TC_API FlightRecorder {
 public:
  explicit FlightRecorder(size_t max_entries);

  // Returns: the recorder of the process, with TORCHCOMM_FR_BUFFER_SIZE entries, created on first
  // use.
  // Throws: CommError(kInvalidArgument) if the variable is not a size.
  static const std::shared_ptr<FlightRecorder>& get();
  // Returns: the recorder of the process; null if it was not created yet.
  static std::shared_ptr<FlightRecorder> existing() noexcept;

  // Registers a communicator. The recorder lists the group as long as the caller or an entry holds
  // it.
  std::shared_ptr<RecordedGroup> add_group(std::string name, std::string backend);
  // Sets the global ranks of the members, in rank order, and the rank of this process in them.
  void set_members(RecordedGroup& group, std::vector<int> ranks, int rank);

  // Records an operation; `entry.group` must not be null. record() sets the creation time.
  // Returns: the id for the methods below, which do nothing once the entry was overwritten or
  // reset.
  uint64_t record(Entry entry);
  // `ok`: the operation completed. Without `ok` the entry is only marked as failed, and keeps its
  // state.
  void started(uint64_t id) noexcept;
  void ended(uint64_t id, bool ok) noexcept;

  // Returns: all entries, or without `include_completed` only those that have not retired, as JSON
  // or as a pickle of plain Python values. Without `include_entries` the dump only lists the
  // communicators and their last collectives.
  std::string dump_json(bool include_completed = true, bool include_entries = true) const;
  std::string dump_pickle(bool include_completed = true, bool include_entries = true) const;

  // Removes all entries; size() is 0 afterwards. Groups stay.
  void reset() noexcept;
  // Returns: the number of entries since creation or the last reset(), including overwritten ones.
  size_t size() const noexcept;
  // Returns: the global rank of this process, as the first registered communicator with members
  // gives it; no value if there is none.
  std::optional<int> global_rank() const;

 private:
  Entry* find(uint64_t id) noexcept;  // the caller holds mutex_
  void write(DocumentWriter& out, bool include_completed, bool include_entries,
             bool even_if_empty) const;
  void write_groups(DocumentWriter& out, const std::vector<const Entry*>& entries) const;

  const size_t max_entries_;
  mutable std::mutex mutex_;  // guards all below, and the groups
  std::vector<Entry> ring_;   // entry `id` is at id % max_entries_
  uint64_t next_id_ = 0;      // never restarts, so that a late call cannot find a wrong entry
  uint64_t first_id_ = 0;     // value of next_id_ at the last reset()
  uint64_t next_group_ = 0;
  std::vector<std::weak_ptr<RecordedGroup>> groups_;
};

// Records the operations of the communicators that it is registered with, and of their splits. An
// error in the recorder is logged and never fails an operation. Its abort hook sets
// TorchCommsHealthCheck::isTimedOut(). If the process is about to be terminated, the hook also
// blocks for TORCHCOMM_HEALTH_CHECK_WAIT_MS, so that a collector can fetch the record.
// Lifetime: recording continues after this object is destroyed, until the communicator is finalized
// or destroyed.
// Threads: any.
class TC_API FlightRecorderHook {
 public:
  // `isolated`: the hook has its own ring of `max_entries`, and the next operation id becomes 0.
  // Otherwise all such hooks share the recorder of the process, and `max_entries` is not used.
  // Throws: CommError(kInvalidArgument) as FlightRecorder::get().
  explicit FlightRecorderHook(size_t max_entries = 2048, bool isolated = false);

  // Registers a communicator, which need not be connected yet. Several communicators may be
  // registered. A communicator that is registered twice is recorded twice.
  // Throws: CommError(kInvalidArgument) for nullptr.
  void registerWithComm(const std::shared_ptr<TorchComm>& comm);
  // Ends the recording of all communicators; the entries stay. It is idempotent.
  void unregister();
  // Returns: true if a communicator was registered since the last unregister().
  bool isEnabled() const;

  // Returns: FlightRecorder::dump_json() of the recorder of this hook.
  std::string dump_json(bool include_completed = true) const;
  // Passes the pickle to the DebugInfoWriter of `rank`. An error is logged.
  void dump_file(int rank, bool include_completed = true) const noexcept;
  void reset();
  size_t size() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torch::comms::fr
