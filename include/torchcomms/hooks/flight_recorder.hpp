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

// What communicators were asked to do, in a form that PyTorch's flight recorder tools read.
namespace torch::comms::fr {

class DocumentWriter;

// A communicator that is recorded. Its members belong to the recorder that made it.
struct RecordedGroup {
  uint64_t id = 0;         // how many were registered before
  std::string name;        // of the communicator
  std::string backend;     // shown as the group's description
  std::vector<int> ranks;  // global, in rank order; empty while not connected
  int rank = -1;           // of this process in it
  uint64_t collectives = 0;
  // Sequence numbers of the last collective that was issued, has started, has completed; 0: none.
  uint64_t last_enqueued = 0, last_started = 0, last_completed = 0;
};

enum class EntryState : uint8_t { kScheduled, kStarted, kCompleted };

// One recorded operation.
struct Entry {
  std::shared_ptr<RecordedGroup> group;
  OpName op = OpName::barrier;
  std::string profiling_name;   // "<backend>:<op>"; of messages also " 0->1" or " 1<-0"
  uint64_t sequence = 0;        // agrees on all ranks that take part
  bool numbered_apart = false;  // from outside of the group, whose collectives it is not among
  uint64_t op_id = 0;           // as hooks see it
  uint32_t thread = 0;
  std::string thread_name;
  std::vector<std::vector<int64_t>> input_sizes, output_sizes;
  std::vector<c10::ScalarType> input_dtypes, output_dtypes;
  std::optional<RedOpType> reduce_op;
  int root = -1, peer = -1;  // -1: none
  int64_t timeout_ms = 0;

  EntryState state = EntryState::kScheduled;
  bool retired = false;  // the call returned and the operation completed
  bool failed = false;   // the call raised, or the operation ended in an error
  bool refused = false;  // failed before anything was sent
  int64_t created_ns = 0, started_ns = 0, completed_ns = 0;  // wall clock; 0: not known
};

// The last `max_entries` operations; 0 records nothing. Memory is taken as entries come.
//
// Threads: any. Failure: none but memory.
class TC_API FlightRecorder {
 public:
  explicit FlightRecorder(size_t max_entries);

  // The recorder of the process, of TORCHCOMM_FR_BUFFER_SIZE entries, made at the first use. Throws
  // CommError(kInvalidArgument) where the variable is no size.
  static const std::shared_ptr<FlightRecorder>& get();
  // Whether there is one, without making it.
  static std::shared_ptr<FlightRecorder> existing() noexcept;

  std::shared_ptr<RecordedGroup> add_group(std::string name, std::string backend);
  void set_members(RecordedGroup& group, std::vector<int> ranks, int rank);

  // Takes the entry in, and gives one without a sequence number that of its group's next
  // collective. Returns what the calls below know it by;
  // they do nothing once the entry was overwritten or forgotten.
  uint64_t record(Entry entry);
  void started(uint64_t id) noexcept;
  void ended(uint64_t id, bool ok) noexcept;
  // The call raised.
  void set_failed(uint64_t id) noexcept;
  // A hook raised before anything was sent. Its number is the next operation's, as it is on ranks
  // where nobody refused.
  void set_refused(uint64_t id) noexcept;

  // Everything that is recorded, or what has not retired alone, as JSON or as a pickle of plain
  // Python values. Without entries, only the communicators are left.
  std::string dump_json(bool include_completed = true, bool include_entries = true) const;
  std::string dump_pickle(bool include_completed = true, bool include_entries = true) const;

  // Forgets all entries; size() is 0 then. Groups stay.
  void reset() noexcept;
  // Entries since the creation or the last reset(), overwritten ones included.
  size_t size() const noexcept;
  // The global rank of this process: that of the first registered communicator that is connected.
  std::optional<int> global_rank() const;

 private:
  Entry* find(uint64_t id) noexcept;  // mutex_ held
  void write(DocumentWriter& out, bool include_completed, bool include_entries,
             bool even_if_empty) const;
  void write_groups(DocumentWriter& out, const std::vector<const Entry*>& entries) const;

  const size_t max_entries_;
  mutable std::mutex mutex_;  // guards all below, and the groups
  std::vector<Entry> ring_;   // entry `id` is at id % max_entries_
  uint64_t next_id_ = 0;      // never restarts, so that late calls find no wrong entry
  uint64_t first_id_ = 0;     // at the last reset()
  uint64_t next_group_ = 0;
  std::vector<std::weak_ptr<RecordedGroup>> groups_;
};

// Records the operations of the communicators that it is registered with, and of their splits.
//
// Threads: any. Never fails an operation: what goes wrong is logged. Recording goes on when the
// object is gone, until the communicator is.
class TC_API FlightRecorderHook {
 public:
  // `isolated`: a ring of its own of `max_entries`, and the next operation id becomes 0. Else all
  // share the recorder of the process, and `max_entries` is not used.
  explicit FlightRecorderHook(size_t max_entries = 2048, bool isolated = false);

  // May be called for several communicators, and for ones that are not connected yet. Twice for the
  // same one records everything twice.
  void registerWithComm(const std::shared_ptr<TorchComm>& comm);
  // Ends the recording. Idempotent.
  void unregister();
  bool isEnabled() const;

  std::string dump_json(bool include_completed = true) const;
  // Hands the pickle to the DebugInfoWriter of `rank`. What goes wrong is logged.
  void dump_file(int rank, bool include_completed = true) const noexcept;
  void reset();
  size_t size() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace torch::comms::fr
