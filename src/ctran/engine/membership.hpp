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

#include "ctran/engine/engine.hpp"
#include "ctran/engine/express.hpp"
#include "ctran/engine/fingerprint.hpp"
#include "ctran/engine/plan.hpp"
#include "ctran/engine/task.hpp"
#include "side/rank_progress.hpp"

namespace torch::comms::ctran {

using monitor::NonCollectiveCall;
using monitor::ProgressReport;

// What is known of a group on this rank.
//
// Threads: the first part never changes; the second is of any thread; the rest belongs to whoever
// has the engine's lock.
class Membership {
 public:
  // Streams of the links that a group uses, from its `base` on.
  enum Stream : uint32_t { kCollectives, kMessages, kSplits, kStreams };

  Membership(std::shared_ptr<Engine> engine, std::string name, std::vector<int> ranks,
             uint32_t base);

  const std::shared_ptr<Engine> engine;
  const std::string name;
  const std::vector<int> ranks;  // of the family, by rank here
  const uint32_t base;
  const Plan::Place place;
  int size() const noexcept { return place.size; }
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
  std::shared_ptr<const Plan> plan(const Call& call);
  std::atomic<uint64_t> sequence{0};  // of the last collective
  // Members below 32, a bit each, that have said that their devices write to others no more.
  std::atomic<uint32_t> resting{0};

  // ---- with the lock
  // True for the first one. The text says whose, the code what kind.
  bool set_failure(Errc code, std::string why, std::vector<int> culprits) noexcept;
  // The group's error, as it concerns one call.
  std::unique_ptr<CommError> error_for(const Task& task) const;
  // Of a collective that this rank called lately; its newest for others.
  const Fingerprint& fingerprint(uint64_t number) const noexcept;
  // Where this rank meets a message with this tag now, of one of those: which that was, in words.
  // "": of none, or not to be known any more.
  std::string left_over(uint32_t tag) const;
  void remember(const std::shared_ptr<const Plan>& plan, uint64_t number) noexcept {
    auto& kept = prints_[number % kPrints];
    kept = plan->fingerprint();
    kept.sequence = number;
    auto& exchange = exchanges_[number % kPrints];
    if (plan->has_own_counts())
      exchange = plan;
    else if (exchange)
      exchange.reset();
  }
  // In what counts this rank, in a collective that it remembers, and another one differ, which has
  // asked; "": in none.
  std::string other_counts(int rank, const Notice& question) const;

  // What runs calls like this one, if a plan for them is in the cache and made for that. Throws as
  // Engine::set().
  Express* express(const Call& call);

  std::deque<Task*> queue;  // collectives; the first one runs
  uint64_t running() const noexcept { return queue.empty() ? 0 : queue.front()->sequence; }
  // Of the last collective that has.
  uint64_t begun() const noexcept {
    return queue.empty() ? sequence.load(std::memory_order_relaxed) : running();
  }

  // How far this rank is, for others that ask.
  RankProgress whereabouts() const noexcept;
  // Something beside the collectives has begun, and has ended well.
  void note_begun(const NonCollectiveCall& aside) noexcept {
    last_aside_ = aside, ++asides_called_;
  }
  void note_ended() noexcept { ++asides_finished_; }
  uint64_t finished = 0;  // number of the last collective that ended well

  // Streams of messages with tags, and who was told of them: see tags.cpp.
  struct Tags {
    std::unordered_map<int, uint32_t> to;          // by tag
    std::set<std::pair<int, int>> told;            // rank and tag
    std::map<std::pair<int, int>, uint32_t> from;  // by rank and tag
  } tags;

  // A member has closed the group: it calls nothing more, and all that it has sent is known here,
  // see Transport::send().
  struct Departure {
    uint64_t last = 0;      // number of its last collective
    bool receives = false;  // receives or collectives of it are still open
  };
  std::unordered_map<int, Departure> departed;  // of other members, by rank
  bool met_departure = false;                   // a message of this rank failed by one of them
  bool leaving = false;                         // this rank calls nothing any more
  bool left = false;                            // and has told the others so
  Departure told;                               // then: what it has told last
  // nullptr: the member has not closed the group. Of this rank: what it has told.
  const Departure* departure(int rank) const {
    if (rank == place.rank) return left ? &told : nullptr;
    const auto found = departed.find(rank);
    return found == departed.end() ? nullptr : &found->second;
  }
  // This transfer with a member that has closed the group will never be done, unless the member had
  // posted its own part before.
  bool is_in_vain(int rank, const transport::Request& transfer) const {
    return !transfer.has_begun() && departed.contains(rank);
  }

  // Ranks have found out that they disagree, and collect what each has called.
  struct Disagreement {
    uint64_t sequence = 0;
    Deadline until;
    bool answered = false;  // this rank has come to it, and said what it called
    std::unordered_map<int, Fingerprint> prints;  // by rank
    std::string met = {};                         // by the first rank that said so
  };
  std::unique_ptr<Disagreement> disagreement;
  // What members have asked that wait in a collective to which this rank has not come: the last
  // question of each, by rank.
  std::unordered_map<int, Notice> questions;
  // The group is about to fail: its ranks are asked where they are, for the error's text.
  struct Inquiry {
    Errc code = Errc::kInternal;
    std::string why;
    std::vector<int> culprits;  // empty: who is behind, or silent
    Deadline until;
    bool asked = false;  // not while somebody else's question may bring the end
    int closed_by = -1;  // see Task::Failure
    ProgressReport seen;
    // Where that rank says meanwhile why it has ended, this is the reason.
    void explain(int rank, Errc of, const std::string& its_why, const std::vector<int>& whose) {
      if (rank != closed_by) return;
      code = of;
      why = its_why;
      culprits = whose;
      closed_by = -1;
    }
  };
  std::unique_ptr<Inquiry> inquiry;
  std::unordered_map<int, int> inquirers;  // by rank of the family: who passed its question on
  // It will fail.
  bool stands_still() const noexcept { return disagreement || inquiry; }
  // While ranks disagree, whatever comes before that goes on: without it, a rank that is behind
  // would never come to say what it calls.
  bool holds(const Task& task) const noexcept {
    return inquiry || (disagreement && !(task.queued && task.sequence < disagreement->sequence));
  }

 private:
  static constexpr size_t kPrints = 8;
  std::array<Fingerprint, kPrints> prints_;
  std::array<std::shared_ptr<const Plan>, kPrints> exchanges_;  // of those with own counts
  static constexpr size_t kMostExpress = 4;
  struct Known {
    std::shared_ptr<const Plan> plan;
    std::unique_ptr<Express> express;  // nullptr: not made for it
  };
  std::vector<Known> express_;
  size_t last_express_ = 0;
  NonCollectiveCall last_aside_;
  uint64_t asides_called_ = 0, asides_finished_ = 0;
  std::mutex mutex_;  // guards the cache and abort_
  PlanCache plans_;
  std::optional<CommError> abort_;
  std::atomic<const CommError*> failure_{nullptr};
  std::unique_ptr<const CommError> failure_owner_;
};

}  // namespace torch::comms::ctran
