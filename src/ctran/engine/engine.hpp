#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ctran/engine/control/control_channel.hpp"
#include "ctran/engine/group/link_table.hpp"
#include "ctran/engine/progress/progress_engine.hpp"
#include "ctran/engine/task/scratch_pool.hpp"
#include "ctran/engine/task/task_pool.hpp"
#include "monitor/monitor_protocol.hpp"
#include "transport/protocol/closed_streams.hpp"

namespace torch::comms::ctran {

class CollectiveTask;
class FastPath;
class GroupState;
struct EngineCall;
struct PendingFailure;

// The implementation of a LinkContext: moves the calls of all groups over the links, and fails the
// calls that cannot complete.
// Threads: the methods marked "any thread" take the lock of progress_engine() themselves if they
// need it. The caller of every other method holds that lock, except for deliver_completions(),
// which must run without it.
class Engine final : public ProgressEngine::ProgressClient,
                     public std::enable_shared_from_this<Engine> {
 public:
  // Throws: CommError(kResourceExhausted) if no descriptor is left.
  explicit Engine(LinkTable links, const LinkContextOptions& options);
  ~Engine() override;

  // ---- any thread
  // Starts the progress thread if there are peers, and connects to all peers if the context is
  // small enough (LinkContextOptions::eager_connect_ranks).
  // Throws: CommError.
  void open();
  // Queues the task, whose deadline is set. Makes no progress. The engine holds one reference to
  // the task until it has completed and its listener has run; the caller holds another.
  void submit(Task* task) noexcept;
  // Queues the task like submit(), and then makes progress once. The task's listener runs even if
  // no caller waits, provided that ProgressEngine::ensure_thread() was called before.
  void start(Task* task) noexcept;
  // Waits until the task is complete, with or without an error. `entered`: the caller holds the
  // lock of progress_engine(), and wait() releases it.
  // Throws: what LinkContextOptions::interrupt_check throws; the task continues then. Also
  // CommError(kResourceExhausted) if the progress thread that continues it cannot start.
  void wait(const Task& task, bool entered = false);
  // Runs a task to its end. A collective runs inline, on the caller's thread, if no other call is
  // in flight. Every other task gets its deadline, is submitted and waited for.
  // Throws: like wait().
  void run(Task* task);
  // Runs a small collective without a task, if a FastPath exists for it and no other call is in
  // flight. It returns false with `rest` null if nothing was started. It returns false with `rest`
  // set if the collective has begun but not completed: the caller then calls wait(*rest, true).
  // Returns: true if the collective has completed without an error.
  // Throws: CommError(kResourceExhausted); the group has failed then.
  bool run_fast_path(const std::shared_ptr<GroupState>& group, const EngineCall& call, Task*& rest);
  // Adds a group, and handles the control messages that arrived for it before. The group fails at
  // once if the links are closed or a link to a member has failed.
  void add_group(const std::shared_ptr<GroupState>& group);
  // Fails the calls in flight with kFinalized and removes the group. The members get a leave
  // message, unless the group has failed before or they have this rank's last one.
  void remove_group(const std::shared_ptr<GroupState>& group) noexcept;
  // Marks the group as leaving: this rank makes no more calls in it. The members get a leave
  // message once they know of everything that this rank has sent, and a second one when it receives
  // nothing more. Window waits delay neither message.
  void announce_leave(GroupState& group) noexcept;
  // Sends a kQuiesced message to the members: no kernel of this rank writes to their memory any
  // more. Sends nothing if the group has failed.
  void announce_quiesced(GroupState& group) noexcept;
  // Makes the engine handle GroupState::request_abort(). Must be called after it.
  void notify_abort_request() noexcept;
  // Throws: CommError(kForked) in a forked child.
  void require_own_process(std::string_view op) const;
  // Choose the streams of a new group, so that all of its members use the same `base`. Each member
  // proposes a base, and all claim the largest proposal. They repeat this if one member could not
  // claim it because another group has it. After `failed` rounds a proposal may be further ahead.
  // The step also depends on `parent`, the base of the group that is split, so that two
  // simultaneous splits do not collide again. A claimed base is never free again, and a base far
  // behind the newest claims cannot be claimed either.
  // Returns: claim_streams() returns false if this rank cannot claim the base.
  uint32_t propose_streams(int failed, uint32_t parent = 0) noexcept;
  bool claim_streams(uint32_t base) noexcept;
  // Stops the progress thread and closes the links. All groups fail with `why`, including groups
  // that are added later. Tasks that are submitted later complete with it. The first reason counts.
  // Threads: any, but not inside a CompletionListener, which may run on the progress thread.
  void shut_down(const CommError& why) noexcept;
  bool is_forked() const noexcept;
  // Returns: LinkTable::describe_links(), or "" in a forked child.
  std::string describe_links();
  TaskPool& task_pool() noexcept { return task_pool_; }
  const LinkTable& link_table() const noexcept { return links_; }
  const AlgorithmChooser& chooser() const noexcept { return chooser_; }
  ProgressEngine& progress_engine() noexcept { return progress_engine_; }

  // ---- with the lock of progress_engine()
  // Returns the link to a rank of the context, and connects it on first use. Must not be called
  // after shut_down().
  // Throws: like LinkTable::link_to().
  transport::Transport& link_to(int context_rank);
  // Returns the stream of messages with this tag to or from a member. stream_to() announces a new
  // stream to the receiver. stream_from() returns nothing until the sender has announced its
  // stream.
  // Throws: stream_to() throws like link_to(). Also CommError(kResourceExhausted) if this rank has
  // used all its streams for tagged messages.
  uint32_t stream_to(GroupState& group, int rank, int tag);
  std::optional<uint32_t> stream_from(const GroupState& group, int rank, int tag) const;
  // Returns whether a message with a member that has closed the group is still on its way. Failures
  // because of that member are delayed until the message has arrived.
  bool is_draining(const GroupState& group) const noexcept;
  // Sends a message of the monitor of group `base`. Connects the peer first if the context is too
  // large for all ranks to be connected.
  void send_monitor_message(int context_rank, uint32_t base,
                            const monitor::MonitorMessage& message) noexcept;
  // Returns: which ranks the monitors of all groups reach directly.
  monitor::MonitorTopology monitor_topology() const noexcept {
    return links_.size() <= eager_connect_ranks_ ? monitor::MonitorTopology::kComplete
                                                 : monitor::MonitorTopology::kOverlay;
  }
  const monitor::MonitorProtocol::MonitorRetryPolicy& monitor_retry_policy() const noexcept {
    return monitor_retry_policy_;
  }
  ScratchPool scratch;

  bool progress() noexcept override { return progress(std::nullopt); }
  bool has_work() noexcept override;
  Deadline next_deadline() const noexcept override { return next_deadline_; }
  std::span<transport::Transport* const> links() const noexcept override { return links_.active(); }
  bool needs_background_progress() const noexcept override;
  bool has_completions() const noexcept override {
    return has_completions_.load(std::memory_order_acquire);
  }
  void deliver_completions() noexcept override;

 private:
  enum class TaskAction : uint8_t { kBegin, kAdvance };
  // Inline execution (inline_execution.cpp).
  bool try_enter_inline(const GroupState& group) noexcept;
  bool can_run_inline(const GroupState& group) const noexcept;
  bool has_pending_requests() const noexcept;
  template <class Look>
  bool poll_until_done(const GroupState& group, int often, const Look& look);
  // `excluded`: a stream whose messages the caller receives itself; see
  // Transport::progress_except().
  bool progress(std::optional<uint32_t> excluded) noexcept;
  bool progress_links(std::optional<uint32_t> excluded = std::nullopt) noexcept;
  void enqueue(Task* task) noexcept;
  void complete_inline(Task* task) noexcept;
  bool run_inline(Task* task) noexcept;
  bool resume_as_task(const std::shared_ptr<GroupState>& group, const EngineCall& call,
                      const FastPath& fast_path, Task*& rest);

  bool drain_inbox() noexcept;
  void admit(Task* task) noexcept;
  bool advance_all() noexcept;
  bool run_step(Task* task, TaskAction step) noexcept;
  void start_next_collective(GroupState& group) noexcept;
  void complete(Task* task, std::unique_ptr<CommError> error) noexcept;
  void on_task_failed(Task* task) noexcept;
  void send_leave_if_ready(GroupState& group) noexcept;
  void connect_all(const GroupState& group) noexcept;
  static ControlMessage leave_message(const GroupState& group);
  void track_deadline(Deadline deadline) noexcept {
    next_deadline_ = std::min(next_deadline_, deadline);
  }
  bool poll_control() noexcept;
  bool accept_incoming_peers() noexcept;
  bool check_deadlines() noexcept;
  bool check_aborts() noexcept;

  // Failures (control/failures.cpp).
  void fail(GroupState& group, monitor::AbortReason why) noexcept;
  void fail_for_left_members(GroupState& group) noexcept;
  void on_quiesced(GroupState& group, int from, const ControlMessage& notice) noexcept;
  void complete_finished_messages(GroupState& group) noexcept;
  void complete_failed() noexcept;
  void on_peer_failed(int context_rank, Errc code, const std::string& why) noexcept;
  void on_counts_query(GroupState& group, int rank, const ControlMessage& query) noexcept;
  void broadcast(GroupState& group, const ControlMessage& notice, int excluded = -1) noexcept;
  void send_control(int context_rank, const ControlMessage& notice) noexcept;
  void on_control_message(int from, const ControlMessage& notice) noexcept;
  void on_remote_failure(GroupState& group, int rank, const ControlMessage& notice) noexcept;
  void on_leaving(GroupState& group, int rank, const ControlMessage& notice) noexcept;
  bool has_calls(const GroupState& group) const noexcept;

  // Monitoring (control/monitoring.cpp).
  void follow_monitor(GroupState& group) noexcept;
  bool on_monitor_message(GroupState* group, int from, const ControlMessage& notice) noexcept;
  void on_malformed_message(int from) noexcept;
  void on_monitor_failure(GroupState& group, const monitor::AbortReason& found) noexcept;
  void start_failure(GroupState& group, PendingFailure failure, uint64_t number) noexcept;
  void finish_failure(GroupState& group) noexcept;
  void check_late_call(CollectiveTask& task) noexcept;

  // Streams of tagged messages (group/tag_streams.cpp).
  void on_tag_stream(GroupState& group, int rank, const ControlMessage& notice);
  void close_stream(uint32_t stream, Errc code) noexcept;
  void close_tag_streams(GroupState& group, Errc code) noexcept;

  LinkTable links_;
  AlgorithmChooser chooser_;
  int eager_connect_ranks_;
  const monitor::MonitorProtocol::MonitorRetryPolicy monitor_retry_policy_;
  std::function<void()> interrupt_check_;
  ProgressEngine progress_engine_;
  TaskPool task_pool_;
  ControlChannel control_channel_;
  uint64_t fork_generation_;
  std::atomic<Task*> inbox_{nullptr};            // a linked list, newest task first
  std::atomic<bool> has_abort_requests_{false};  // a group has requested an abort
  std::unordered_map<uint32_t, std::shared_ptr<GroupState>> groups_;  // by GroupState::base
  std::vector<Task*> active_;
  unsigned inline_calls_ = 0;  // calls that tried to run inline
  // Groups that have failed; complete_failed() still has to complete their calls.
  std::vector<GroupState*> failed_groups_;
  std::mutex completions_mutex_;              // guards completions_
  std::vector<Task*> completions_;            // tasks whose listeners have not run yet
  std::atomic<bool> has_completions_{false};  // completions_ is not empty
  struct EarlyControlMessage {
    int from;
    ControlMessage message;
  };
  std::list<EarlyControlMessage> early_messages_;  // for groups that this rank has not created yet
  transport::ClosedStreams removed_streams_;       // streams of removed groups
  uint32_t tag_streams_ = 0;                       // number of streams taken from this rank's range
  std::mutex streams_mutex_;                       // guards the next three fields
  uint32_t next_proposed_, next_stream_;  // next_stream_: a base below it cannot be claimed
  std::vector<uint32_t> claimed_;         // claimed bases from next_stream_ on, ascending
  Deadline next_deadline_ = Deadline::max();
  unsigned progress_calls_ = 0;
  bool has_unread_control_ = false;  // a link has moved something since the last poll_control()
  bool is_deadline_passed_ = false;  // next_deadline_ has passed
  // Peers that are linked for the monitor alone. If such a link fails, the peer may have closed the
  // group before, or this rank have no descriptor left: only a call that needs the link fails.
  std::set<int> monitor_links_;
  std::optional<CommError> close_reason_;  // set once the links are closed
  std::atomic<bool> is_closed_{false};     // the links are closed or about to be closed
};

// Holds the engine's lock while it lives.
class EngineLock {
 public:
  explicit EngineLock(Engine& engine) noexcept : progress_engine_(engine.progress_engine()) {
    progress_engine_.enter();
  }
  ~EngineLock() { progress_engine_.leave(); }
  EngineLock(const EngineLock&) = delete;
  EngineLock& operator=(const EngineLock&) = delete;

 private:
  ProgressEngine& progress_engine_;
};

}  // namespace torch::comms::ctran
