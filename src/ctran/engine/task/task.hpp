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

// The base of every call in flight. A task comes from a TaskPool of its engine and returns to it
// with its last reference.
// Threads: `is_done`, `error` after it, and the references may be used from any thread. Once the
// task is submitted, everything else requires the engine's lock.
class Task {
 public:
  virtual ~Task() = default;

  enum class TaskStatus : uint8_t { kInProgress, kDone, kFailed };
  // Posts the first transfers.
  // Throws: CommError, std::bad_alloc.
  virtual TaskStatus begin() = 0;
  // Does what can be done now without blocking.
  // Returns: kFailed with the reason in `failure`.
  // Throws: like begin().
  virtual TaskStatus advance() = 0;
  // Called when a sender has announced the stream of a tag.
  virtual void on_tag_stream_known() {}
  // Forgets the caller's memory. Called when no transfer is in flight any more.
  virtual void close() noexcept = 0;
  // For a group that this rank is leaving. can_still_send(): the call may still begin a transfer
  // that the members do not know of by its number. can_still_receive(): the call may still receive
  // something from members.
  virtual bool can_still_send() const noexcept { return !is_queued; }
  virtual bool can_still_receive() const noexcept { return true; }
  // Returns: whether the call moves a message that will still arrive although its peer has closed
  // the group.
  virtual bool is_draining() const noexcept { return false; }
  // Returns: whether only this call fails, not the group, if a member that it waits for has closed
  // the group.
  virtual bool can_outlive_left_peers() const noexcept { return false; }
  // Returns: what the call is waiting for, for error texts: "still missing: data from rank 3".
  virtual std::string format_pending() const = 0;
  // Returns: the members that the call waits for, ascending. Empty for a collective: the progress
  // report names them.
  virtual std::vector<int> awaited_ranks() const { return {}; }
  // Returns: "all_reduce(float32, 7 elements, SUM) as number 3", or "send".
  virtual std::string format_call() const = 0;

  void retain() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept;
  // Completes the task with `error` or nullptr. A thread that sees `is_done` also sees `error`.
  void finish(std::unique_ptr<CommError> error) noexcept;

  std::atomic<bool> is_done{false};
  std::unique_ptr<CommError> error;

  std::shared_ptr<GroupState> group;
  std::string_view name;
  CompletionListener* listener = nullptr;
  Deadline deadline = Deadline::max();
  CallTimeout timeout = kNoTimeout;
  bool is_collective = true;              // true: a CollectiveTask of the pool
  bool is_pooled = true;                  // false: deleted with its last reference
  bool is_queued = true;                  // runs in order with the group's collectives
  bool is_local_failure = false;          // after kFailed: the group continues
  Deadline idle_since = Deadline::max();  // since when the call waits while every thread sleeps
  Deadline next_check = Deadline::max();  // when to compare it with the calls of the peers
  uint64_t sequence = 0;                  // number of a collective in its group
  uint64_t call_number = 0;  // number of any other call, for errors: see base::current_sequence()
  int source = kAnySource;   // see EngineWork::source(); written before is_done
  Task* next = nullptr;      // next task in Engine::inbox_

  // Set after kFailed: the peer of the request that failed, and how. If only this call fails, this
  // is its error.
  struct TaskFailure {
    int peer = -1;
    Errc code = Errc::kInternal;
    std::string reason = {};  // of kMismatch between two members, and if only this call fails
    // Of kMismatch: the member has closed memory that the call needs, as it does when it exits.
    bool is_closed_by_peer = false;
  } failure;

 protected:
  friend class TaskPool;
  std::atomic<int> references_{0};
};

}  // namespace torch::comms::ctran
