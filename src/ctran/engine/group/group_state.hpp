#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "ctran/engine/control/collective_fingerprint.hpp"
#include "ctran/engine/engine.hpp"
#include "ctran/engine/plan/collective_plan.hpp"
#include "ctran/engine/progress/fast_path.hpp"
#include "ctran/engine/task/task.hpp"
#include "monitor/monitor_protocol.hpp"

namespace torch::comms::ctran {

using monitor::NonCollectiveCall;
using monitor::RankProgress;

// The error that a group is about to raise. It waits for the monitor: for the progress of all
// ranks, or for what they have called.
struct PendingFailure {
  monitor::AbortReason why;  // without culprits: those of the progress report
  // The collective about which the ranks disagree. Earlier ones go on: otherwise a rank that is
  // behind would never reach it and say what it calls. 0: every call is held.
  uint64_t held_from = 0;
  int closed_by = -1;  // see Task::TaskFailure::is_closed_by_peer
  // Replaces the reason if rank `closed_by` has meanwhile reported why it failed.
  void replace_reason(int rank, const monitor::AbortReason& its_why) {
    if (rank == closed_by) *this = {its_why};
  }
};

// The state of a group on this rank: its members, queue, plans and failure.
// Threads: the first part is constant. The second part may be used from any thread. The rest
// requires the engine's lock.
class GroupState final : private monitor::CollectiveLogReader, private monitor::MessageCarrier {
 public:
  // Streams that a group uses on every link, as offsets from `base`.
  enum StreamOffset : uint32_t { kCollectives, kMessages, kSplits, kStreams };

  // `ranks` must contain this rank. `base`: claimed by Engine::claim_streams().
  GroupState(std::shared_ptr<Engine> engine, std::string name, std::vector<int> ranks,
             uint32_t base);

  const std::shared_ptr<Engine> engine;
  const std::string name;
  const std::vector<int> ranks;  // ranks of the context, by rank of the group
  const uint32_t base;           // first of the group's kStreams streams; identifies the group
  const CollectivePlan::GroupLayout layout;
  int size() const noexcept { return layout.size; }
  // Returns: the group's rank of a rank of the context; -1: it is not a member.
  int rank_of(int context_rank) const noexcept;

  // ---- any thread
  // Returns: the first error of the group, or nullptr. Once set, it never changes.
  const CommError* failure() const noexcept { return failure_.load(std::memory_order_acquire); }
  // Throws: CommError(kForked) in a forked child; the group's error if the group has failed.
  void require_usable(std::string_view op) const;
  // Requests that the group fails with `why`. The first request counts. The engine handles it after
  // Engine::notify_abort_request().
  void request_abort(const CommError& why) noexcept;
  std::optional<CommError> requested_abort();
  // Returns the plan for this call, from the cache or a new one.
  // Throws: like the constructor of CollectivePlan.
  std::shared_ptr<const CollectivePlan> plan(const EngineCall& call);
  // Number of the last collective, queued ones included. Only holders of the engine's lock change
  // it.
  std::atomic<uint64_t> sequence{0};
  // Members that have announced that their devices write no more to peer memory, one bit per rank
  // below 32.
  std::atomic<uint32_t> quiesced{0};

  // ---- with the engine's lock
  // Sets the group's error, unless it has one already. `culprits` are the ranks at fault.
  // Returns: true if this is the first error.
  bool set_failure(Errc code, std::string why, std::vector<int> culprits) noexcept;
  // Returns the group's error with the context of one call. The group must have failed.
  std::unique_ptr<CommError> error_for(const Task& task) const;
  // Returns: the fingerprint of a collective among the last 8 that this rank has started. If
  // `number` is not among them, the fingerprint of another one, or an empty one; the caller
  // compares its `sequence`.
  const Fingerprint& fingerprint(uint64_t number) const noexcept;
  // Describes which recent collective of this rank a received message with an unexpected tag
  // belongs to. "": none of the recent ones.
  std::string describe_stale_message(uint32_t tag) const;
  // Records the fingerprint of collective `number`, and its plan if it has per-rank counts.
  void record_call(const std::shared_ptr<const CollectivePlan>& plan, uint64_t number) noexcept {
    auto& recorded = fingerprints_[number % kFingerprints];
    recorded = plan->fingerprint();
    recorded.sequence = number;
    auto& exchange = own_count_plans_[number % kFingerprints];
    if (plan->has_own_counts())
      exchange = plan;
    else if (exchange)
      exchange.reset();
  }
  // Describes how the counts of this rank and of the rank that asks differ in a recent all_to_all.
  // "": they do not, or the call is not remembered. The caller has checked that fingerprint() knows
  // this call.
  std::string describe_count_mismatch(int rank, const ControlMessage& query) const;

  // Returns the fast path for calls like this one, or nullptr if there is none. A plan for the call
  // must be in the cache and suit a fast path.
  // Throws: like Engine::link_to().
  // Lifetime: until the next call of fast_path(), which may replace it.
  FastPath* fast_path(const EngineCall& call);

  std::deque<Task*> queue;  // collectives in order; the first one runs
  uint64_t running() const noexcept { return queue.empty() ? 0 : queue.front()->sequence; }

  // Returns how far this rank is; peers that ask get this.
  RankProgress progress() const noexcept;
  // Record that a non-collective call has begun, and that one has ended without failing the group.
  void record_p2p_started(const NonCollectiveCall& call) noexcept {
    last_p2p_call_ = call, ++p2p_started_;
  }
  void record_p2p_finished() noexcept { ++p2p_finished_; }
  uint64_t last_finished = 0;  // number of the last collective that succeeded

  // Returns the monitor of this group, and makes it on first use: a group that is never late and
  // never fails has none. Engine::follow_monitor() must follow each call of it.
  monitor::MonitorProtocol& monitor();
  // Returns: nullptr if there is none yet.
  monitor::MonitorProtocol* existing_monitor() noexcept { return monitor_.get(); }

  // Streams of tagged messages, and the receivers that know of them; see tag_streams.cpp.
  struct TagStreams {
    std::unordered_map<int, uint32_t> to;          // tag to stream
    std::set<std::pair<int, int>> announced;       // (rank, tag)
    std::map<std::pair<int, int>, uint32_t> from;  // (rank, tag) to stream
  } tag_streams;

  // A member's leave message: the member makes no more calls, and this rank knows of all that the
  // member has sent (see Transport::send()).
  struct GroupLeave {
    uint64_t last_collective = 0;    // number of the member's last collective
    bool has_open_receives = false;  // the member still has open receives or collectives
  };
  std::unordered_map<int, GroupLeave> left_members;  // by rank, without this rank
  bool has_failed_for_leave = false;  // a message of this rank failed because its peer had left
  bool is_leaving = false;            // this rank makes no more calls
  bool has_announced_leave = false;   // this rank has sent its leave message
  GroupLeave announced_leave;         // the content of its last leave message
  // Returns: the leave message of a member, or of this rank if it has sent one; nullptr: it has not
  // left.
  const GroupLeave* leave_of(int rank) const {
    if (rank == layout.rank) return has_announced_leave ? &announced_leave : nullptr;
    const auto found = left_members.find(rank);
    return found == left_members.end() ? nullptr : &found->second;
  }
  // For an open transfer of a collective without a number in the group.
  // Returns: whether it can never complete, because the member has left the group before it posted
  // its side of the transfer.
  bool can_never_complete(int rank, const transport::Request& transfer) const {
    return !transfer.has_begun() && left_members.contains(rank);
  }

  std::optional<PendingFailure> pending;
  // Returns: whether the task must not advance.
  bool is_held(const Task& task) const noexcept {
    return pending && !(task.is_queued && task.sequence < pending->held_from);
  }

 private:
  uint64_t first_incomplete() const override { return running(); }
  monitor::RankStatus status_of(uint64_t number) const override;
  void send(int rank, const monitor::MonitorMessage& message) override;
  monitor::Moment now() const noexcept override;

  std::unique_ptr<monitor::MonitorProtocol> monitor_;
  static constexpr size_t kFingerprints = 8;
  std::array<Fingerprint, kFingerprints> fingerprints_;
  std::array<std::shared_ptr<const CollectivePlan>, kFingerprints>
      own_count_plans_;  // by number; plans with per-rank counts only
  static constexpr size_t kMaxFastPaths = 4;
  struct CachedFastPath {
    std::shared_ptr<const CollectivePlan> plan;
    std::unique_ptr<FastPath> fast_path;  // nullptr: the plan suits no fast path
  };
  std::vector<CachedFastPath> fast_paths_;
  size_t last_fast_path_ = 0;
  NonCollectiveCall last_p2p_call_;
  uint64_t p2p_started_ = 0, p2p_finished_ = 0;
  std::mutex mutex_;  // guards plans_ and abort_
  CollectivePlanCache plans_;
  std::optional<CommError> abort_;
  std::atomic<const CommError*> failure_{nullptr};
  std::unique_ptr<const CommError> failure_owner_;
};

}  // namespace torch::comms::ctran
