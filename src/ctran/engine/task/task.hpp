#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/engine/engine_call.hpp"
#include "ctran/engine/progress/progress_engine.hpp"
#include "transport/protocol/request.hpp"

namespace torch::comms::ctran {

class Engine;
class GroupState;

// A call in flight: what all kinds share. Taken from a pool of its engine, given back by whoever
// lets it go last.
//
// Threads: `done`, `error` after it, and the references from any thread; all else belongs to the
// one with the lock, once it was submitted.
class Task {
 public:
  virtual ~Task() = default;

  enum class TaskStatus : uint8_t { kInProgress, kDone, kFailed };
  // The first transfers. Throws CommError, std::bad_alloc.
  virtual TaskStatus begin() = 0;
  // What can be done now. kFailed: `failed` tells how. Throws as begin().
  virtual TaskStatus advance() = 0;
  // A sender has told the stream of one of its tags.
  virtual void on_tag_stream_known() {}
  // No transfer is in flight any more: forgets the caller's memory.
  virtual void close() noexcept = 0;
  // This rank closes the group. Whether the call may still begin something that the other members
  // do not know of, other than by its number, and whether it may still take something of theirs.
  virtual bool can_still_send() const noexcept { return !is_queued; }
  virtual bool can_still_receive() const noexcept { return true; }
  // It moves a message whose other side has closed the group since, and which will arrive.
  virtual bool is_draining() const noexcept { return false; }
  // Where a member that it waits for has closed the group, it fails alone.
  virtual bool can_outlive_left_peers() const noexcept { return false; }
  // "rank 3 has not delivered": what it is waiting for.
  virtual std::string format_pending() const = 0;
  // The members that this is on, in order. None: the group's question finds them, as of a
  // collective.
  virtual std::vector<int> awaited_ranks() const { return {}; }
  // "all_reduce(float32, 7 elements, sum) as number 3", or "send".
  virtual std::string format_call() const = 0;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept;
  // Ends it: `error` or none, seen by whoever sees `done`.
  void finish(std::unique_ptr<CommError> error) noexcept;

  std::atomic<bool> is_done{false};
  std::unique_ptr<CommError> error;

  std::shared_ptr<GroupState> group;
  std::string_view name;
  CompletionListener* listener = nullptr;
  Deadline deadline = Deadline::max();
  CallTimeout timeout = kNoTimeout;
  bool is_collective = true;              // which kind of task it is
  bool is_pooled = true;                  // false: it ends with its last reference
  bool is_queued = true;                  // it takes its turn among the group's collectives
  bool is_local_failure = false;          // of kFailed: its group goes on
  bool has_queried = false;               // the others what they are doing
  Deadline idle_since = Deadline::max();  // it was waiting when everybody went to sleep
  uint64_t sequence = 0;                  // of a collective among those of its group
  uint64_t call_number = 0;  // of anything else, for its errors: see base::current_sequence()
  int source = kAnySource;   // see EngineWork::source(); written before `done`
  Task* next = nullptr;      // in the inbox

  // After kFailed: the request that failed, with this member, or that was not as it should be. Of
  // one that fails alone: its error.
  struct TaskFailure {
    int peer = -1;
    Errc code = Errc::kInternal;
    std::string reason = {};  // of kSizeMismatch between two members, and of one that fails alone
    // Of kSizeMismatch: the member has closed what the call needs of it, as it does when it ends.
    bool is_closed_by_peer = false;
  } failure;

 protected:
  friend class TaskPool;
  std::atomic<int> references_{0};
};

}  // namespace torch::comms::ctran
