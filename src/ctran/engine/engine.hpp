#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ctran/engine/control/control_channel.hpp"
#include "ctran/engine/group/link_table.hpp"
#include "ctran/engine/progress/progress_engine.hpp"
#include "ctran/engine/task/scratch_pool.hpp"
#include "ctran/engine/task/task_pool.hpp"
#include "transport/protocol/closed_streams.hpp"

namespace torch::comms::ctran {

class CollectiveTask;
class FastPath;
class GroupState;
struct EngineCall;

// What a family is inside: it moves the calls of all groups over the links, and ends those that
// cannot go on.
//
// Threads: as marked; the rest with the lock of `progress`.
class Engine final : public ProgressEngine::ProgressClient,
                     public std::enable_shared_from_this<Engine> {
 public:
  explicit Engine(LinkTable links, const LinkContextOptions& options);
  ~Engine() override;

  // ---- any thread
  // Connects what is to be connected at once.
  void open();
  // The task is in the engine's hands from here on; it has the caller's reference besides.
  void submit(Task* task) noexcept;
  // The same, and looks at it at once. Its listener is told though nobody waits, where
  // Progress::ensure_thread() was called before.
  void start(Task* task) noexcept;
  // Returns when the task has ended. Throws what LinkContextOptions::interrupt does. `entered`:
  // with the lock of `progress`, which it gives back.
  void wait(const Task& task, bool entered = false);
  // Sets the task's deadline, submits it and waits; at once where nothing else is under way.
  void run(Task* task);
  // The same for a collective that can go without a task, and has its engine to itself: true if it
  // has ended, well. Else nothing has happened; or all but its end, and `rest` is to be waited for
  // by wait(*rest, true). Throws CommError(kResourceExhausted), after which the group has failed.
  bool run_fast_path(const std::shared_ptr<GroupState>& group, const EngineCall& call, Task*& rest);
  void add_group(const std::shared_ptr<GroupState>& group);
  // Ends what is in flight, tells the members, and forgets it.
  void remove_group(const std::shared_ptr<GroupState>& group) noexcept;
  // Nothing is called any more: tells the members when nothing but waits for them is in flight.
  void announce_leave(GroupState& group) noexcept;
  // Nothing on this rank's device writes to the others' any more: they learn of it.
  void announce_quiesced(GroupState& group) noexcept;
  void notify_abort_request() noexcept;
  // Throws CommError(kForked) in a forked child.
  void require_own_process(std::string_view op) const;
  // Streams for a new group, beginning at the same number on all of its members: each proposes one,
  // all claim the largest, and begin anew where one could not, because another group has it. The
  // more often it has `failed`, the further ahead a proposal is, by a step that `parent`, the base
  // of the group that is split, decides: so two that are made at the same time do not meet again.
  // What is claimed is never free again, nor is what lies far behind.
  uint32_t propose_streams(int failed, uint32_t parent = 0) noexcept;
  bool claim_streams(uint32_t base) noexcept;
  // Closes the links: all groups fail with that, also those that are added later, and whatever is
  // submitted ends with it. The first reason counts.
  void shut_down(const CommError& why) noexcept;
  bool is_forked() const noexcept;
  // LinkTable::describe_links(); "" in a forked child.
  std::string describe_links();
  TaskPool& task_pool() noexcept { return task_pool_; }
  const LinkTable& link_table() const noexcept { return links_; }
  const AlgorithmChooser& chooser() const noexcept { return chooser_; }
  ProgressEngine& progress_engine() noexcept { return progress_engine_; }

  // ---- with the lock
  // The link to a rank of the family, connected if it was not. Throws CommError.
  transport::Transport& link_to(int family_rank);
  // The stream of messages with a tag to a member; throws as link_to(). Of those from a member:
  // nothing before it has said that it sends any.
  uint32_t stream_to(GroupState& group, int rank, int tag);
  std::optional<uint32_t> stream_from(const GroupState& group, int rank, int tag) const;
  // A message with a member that has closed the group is on its way: what fails for that member
  // waits until it has arrived.
  bool is_draining(const GroupState& group) const noexcept;
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
  // A call that has its engine to itself (alone.cpp).
  bool try_enter_inline(const GroupState& group) noexcept;
  bool can_run_inline(const GroupState& group) const noexcept;
  bool has_pending_requests() const noexcept;
  template <class Look>
  bool poll_until_done(const GroupState& group, int often, const Look& look);
  // `but`: messages of this stream are about to be taken at once: Transport::progress_except().
  bool progress(std::optional<uint32_t> but) noexcept;
  bool progress_links(std::optional<uint32_t> but = std::nullopt) noexcept;
  void enqueue(Task* task) noexcept;
  void complete_inline(Task* task) noexcept;
  bool run_inline(Task* task) noexcept;
  bool resume_as_task(const std::shared_ptr<GroupState>& group, const EngineCall& call,
                      const FastPath& express, Task*& rest);

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

  // Failures (failures.cpp).
  void fail(GroupState& group, Errc code, const std::string& why,
            std::vector<int> culprits) noexcept;
  void fail_for_left_members(GroupState& group) noexcept;
  void on_quiesced(GroupState& group, int from, const ControlMessage& notice) noexcept;
  void complete_finished_messages(GroupState& group) noexcept;
  void complete_failed() noexcept;
  void on_peer_failed(int family_rank, Errc code, const std::string& why) noexcept;
  void query_fingerprints(GroupState& group, const CollectiveTask& task) noexcept;
  void on_fingerprint_query(GroupState& group, int rank, const ControlMessage& question) noexcept;
  void answer_deferred_queries(GroupState& group) noexcept;
  void start_mismatch(GroupState& group, uint64_t sequence, const std::string& met = {}) noexcept;
  void send_own_fingerprint(GroupState& group) noexcept;
  void record_fingerprint(GroupState& group, int rank, uint64_t sequence,
                          const Fingerprint& print) noexcept;
  void finish_mismatch(GroupState& group) noexcept;
  void broadcast(GroupState& group, const ControlMessage& notice, int but = -1) noexcept;
  void send_control(int family_rank, const ControlMessage& notice) noexcept;
  void on_control_message(int from, const ControlMessage& notice) noexcept;
  void on_remote_failure(GroupState& group, int rank, const ControlMessage& notice) noexcept;
  void on_leaving(GroupState& group, int rank, const ControlMessage& notice) noexcept;
  bool has_calls(const GroupState& group) const noexcept;

  // Tags of messages (tags.cpp).
  void on_tag_stream(GroupState& group, int rank, const ControlMessage& notice);
  void close_stream(uint32_t stream, Errc code) noexcept;
  void close_tag_streams(GroupState& group, Errc code) noexcept;

  // Where every rank is (inquiry.cpp).
  static constexpr const char* kLeftText = "it has closed the communicator";
  static constexpr const char* kFailedText = "its process or its link has ended";
  static constexpr const char* failure_text(Errc code) noexcept {  // of its link
    return code == Errc::kPeerFailed ? kFailedText : "not to be reached from here";
  }
  void start_hang_query(GroupState& group, Errc code, std::string why, std::vector<int> culprits,
                        uint64_t number) noexcept;
  void mark_unavailable(GroupState& group, int rank, const char* why) noexcept;
  void record_progress(GroupState& group, int rank, const RankProgress& place) noexcept;
  void finish_hang_query_if_complete(GroupState& group) noexcept;
  static void add_failed_peers(const monitor::ProgressReport& seen, std::vector<int>& culprits);
  void finish_hang_query(GroupState& group) noexcept;
  void query_all_progress(GroupState& group) noexcept;
  void on_hang_query_timeout(GroupState& group) noexcept;
  void on_progress_query(GroupState* group, int from, const ControlMessage& question) noexcept;
  void on_progress(GroupState& group, const ControlMessage& answer) noexcept;

  LinkTable links_;
  AlgorithmChooser chooser_;
  int eager_connect_ranks_;
  std::chrono::milliseconds query_timeout_;
  std::function<void()> interrupt_check_;
  ProgressEngine progress_engine_;
  TaskPool task_pool_;
  ControlChannel control_channel_;
  uint64_t fork_generation_;
  std::atomic<Task*> inbox_{nullptr};                                 // newest first
  std::atomic<bool> has_abort_requests_{false};                       // a group wants one
  std::unordered_map<uint32_t, std::shared_ptr<GroupState>> groups_;  // by base
  std::vector<Task*> active_;
  unsigned inline_calls_ = 0;  // calls that found nobody at it
  std::vector<GroupState*>
      failed_groups_;               // failed in this turn: their calls are still to be ended
  std::mutex completions_mutex_;    // guards the next one
  std::vector<Task*> completions_;  // whose listeners are still to be told
  std::atomic<bool> has_completions_{false};  // there are some
  struct EarlyControlMessage {
    int from;
    ControlMessage message;
  };
  std::list<EarlyControlMessage> early_messages_;  // for groups that this rank has not made yet
  transport::ClosedStreams removed_streams_;       // of groups that it has had
  uint32_t tag_streams_ = 0;                       // taken from this rank's range
  std::mutex streams_mutex_;                       // guards the next two
  uint32_t next_proposed_, next_stream_;  // next_stream_: what lies before cannot be claimed
  std::vector<uint32_t> claimed_;         // from there on, ascending
  Deadline next_deadline_ = Deadline::max();
  unsigned progress_calls_ = 0;
  bool has_unread_control_ = false;        // something came since the last look at notices
  bool is_deadline_passed_ = false;        // next_deadline_ has passed
  std::optional<CommError> close_reason_;  // set: the links are
  std::atomic<bool> is_closed_{false};     // so they are, or are about to be
};

}  // namespace torch::comms::ctran
