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
#include "monitor/rank_progress.hpp"

namespace torch::comms::ctran {

using monitor::NonCollectiveCall;
using monitor::ProgressReport;

// What is known of a group on this rank.
//
// Threads: the first part never changes; the second is of any thread; the rest belongs to whoever
// has the engine's lock.
class GroupState {
 public:
  // Streams of the links that a group uses, from its `base` on.
  enum StreamOffset : uint32_t { kCollectives, kMessages, kSplits, kStreams };

  GroupState(std::shared_ptr<Engine> engine, std::string name, std::vector<int> ranks,
             uint32_t base);

  const std::shared_ptr<Engine> engine;
  const std::string name;
  const std::vector<int> ranks;  // of the family, by rank here
  const uint32_t base;
  const CollectivePlan::GroupLayout layout;
  int size() const noexcept { return layout.size; }
  // -1: no member.
  int rank_of(int family_rank) const noexcept;

  // ---- any thread
  // The first error, for good.
  const CommError* failure() const noexcept { return failure_.load(std::memory_order_acquire); }
  // Throws CommError: the group's error, or kForked.
  void require_usable(std::string_view op) const;
  void request_abort(const CommError& why) noexcept;
  std::optional<CommError> requested_abort();
  // A plan that fits, from the cache or new.
  std::shared_ptr<const CollectivePlan> plan(const EngineCall& call);
  std::atomic<uint64_t> sequence{0};  // of the last collective
  // Members below 32, a bit each, that have said that their devices write to others no more.
  std::atomic<uint32_t> quiesced{0};

  // ---- with the lock
  // True for the first one. The text says whose, the code what kind.
  bool set_failure(Errc code, std::string why, std::vector<int> culprits) noexcept;
  // The group's error, as it concerns one call.
  std::unique_ptr<CommError> error_for(const Task& task) const;
  // Of a collective that this rank called lately; its newest for others.
  const Fingerprint& fingerprint(uint64_t number) const noexcept;
  // Where this rank meets a message with this tag now, of one of those: which that was, in words.
  // "": of none, or not to be known any more.
  std::string describe_stale_message(uint32_t tag) const;
  void record_call(const std::shared_ptr<const CollectivePlan>& plan, uint64_t number) noexcept {
    auto& kept = fingerprints_[number % kFingerprints];
    kept = plan->fingerprint();
    kept.sequence = number;
    auto& exchange = own_count_plans_[number % kFingerprints];
    if (plan->has_own_counts())
      exchange = plan;
    else if (exchange)
      exchange.reset();
  }
  // In what counts this rank, in a collective that it remembers, and another one differ, which has
  // asked; "": in none.
  std::string describe_count_mismatch(int rank, const ControlMessage& question) const;

  // What runs calls like this one, if a plan for them is in the cache and made for that. Throws as
  // Engine::link_to().
  FastPath* fast_path(const EngineCall& call);

  std::deque<Task*> queue;  // collectives; the first one runs
  uint64_t running() const noexcept { return queue.empty() ? 0 : queue.front()->sequence; }
  // Of the last collective that has.
  uint64_t last_started() const noexcept {
    return queue.empty() ? sequence.load(std::memory_order_relaxed) : running();
  }

  // How far this rank is, for others that ask.
  RankProgress progress() const noexcept;
  // Something beside the collectives has begun, and has ended well.
  void record_p2p_started(const NonCollectiveCall& aside) noexcept {
    last_p2p_call_ = aside, ++p2p_started_;
  }
  void record_p2p_finished() noexcept { ++p2p_finished_; }
  uint64_t last_finished = 0;  // number of the last collective that ended well

  // Streams of messages with tags, and who was told of them: see tags.cpp.
  struct TagStreams {
    std::unordered_map<int, uint32_t> to;          // by tag
    std::set<std::pair<int, int>> announced;       // rank and tag
    std::map<std::pair<int, int>, uint32_t> from;  // by rank and tag
  } tag_streams;

  // A member has closed the group: it calls nothing more, and all that it has sent is known here,
  // see Transport::send().
  struct GroupLeave {
    uint64_t last_collective = 0;    // number of its last collective
    bool has_open_receives = false;  // receives or collectives of it are still open
  };
  std::unordered_map<int, GroupLeave> left_members;  // of other members, by rank
  bool has_failed_for_leave = false;                 // a message of this rank failed by one of them
  bool is_leaving = false;                           // this rank calls nothing any more
  bool has_announced_leave = false;                  // and has told the others so
  GroupLeave announced_leave;                        // then: what it has told last
  // nullptr: the member has not closed the group. Of this rank: what it has told.
  const GroupLeave* leave_of(int rank) const {
    if (rank == layout.rank) return has_announced_leave ? &announced_leave : nullptr;
    const auto found = left_members.find(rank);
    return found == left_members.end() ? nullptr : &found->second;
  }
  // This transfer with a member that has closed the group will never be done, unless the member had
  // posted its own part before.
  bool can_never_complete(int rank, const transport::Request& transfer) const {
    return !transfer.has_begun() && left_members.contains(rank);
  }

  // Ranks have found out that they disagree, and collect what each has called.
  struct PendingMismatch {
    uint64_t sequence = 0;
    Deadline deadline;
    bool has_answered = false;  // this rank has come to it, and said what it called
    std::unordered_map<int, Fingerprint> fingerprints;  // by rank
    std::string detail = {};                            // by the first rank that said so
  };
  std::unique_ptr<PendingMismatch> mismatch;
  // What members have asked that wait in a collective to which this rank has not come: the last
  // question of each, by rank.
  std::unordered_map<int, ControlMessage> deferred_queries;
  // The group is about to fail: its ranks are asked where they are, for the error's text.
  struct HangQuery {
    Errc code = Errc::kInternal;
    std::string reason;
    std::vector<int> culprits;  // empty: who is behind, or silent
    Deadline deadline;
    bool has_asked = false;  // not while somebody else's question may bring the end
    int closed_by = -1;      // see Task::Failure
    ProgressReport report;
    // Where that rank says meanwhile why it has ended, this is the reason.
    void set_reason(int rank, Errc of, const std::string& its_why, const std::vector<int>& whose) {
      if (rank != closed_by) return;
      code = of;
      reason = its_why;
      culprits = whose;
      closed_by = -1;
    }
  };
  std::unique_ptr<HangQuery> hang_query;
  std::unordered_map<int, int> query_routes;  // by rank of the family: who passed its question on
  // It will fail.
  bool is_failing() const noexcept { return mismatch || hang_query; }
  // While ranks disagree, whatever comes before that goes on: without it, a rank that is behind
  // would never come to say what it calls.
  bool is_held(const Task& task) const noexcept {
    return hang_query || (mismatch && !(task.is_queued && task.sequence < mismatch->sequence));
  }

 private:
  static constexpr size_t kFingerprints = 8;
  std::array<Fingerprint, kFingerprints> fingerprints_;
  std::array<std::shared_ptr<const CollectivePlan>, kFingerprints>
      own_count_plans_;  // of those with own counts
  static constexpr size_t kMaxFastPaths = 4;
  struct CachedFastPath {
    std::shared_ptr<const CollectivePlan> plan;
    std::unique_ptr<FastPath> fast_path;  // nullptr: not made for it
  };
  std::vector<CachedFastPath> fast_paths_;
  size_t last_fast_path_ = 0;
  NonCollectiveCall last_p2p_call_;
  uint64_t p2p_started_ = 0, p2p_finished_ = 0;
  std::mutex mutex_;  // guards the cache and abort_
  CollectivePlanCache plans_;
  std::optional<CommError> abort_;
  std::atomic<const CommError*> failure_{nullptr};
  std::unique_ptr<const CommError> failure_owner_;
};

}  // namespace torch::comms::ctran
