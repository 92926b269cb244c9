#include <gtest/gtest.h>

#include <random>

#include "schedule/mistake.hpp"
#include "schedule/proof.hpp"

// The proof must fail for every small change of any schedule: else it would prove little.
namespace torch::comms::schedule {
namespace {

// One random change of one action of one rank.
struct Mutation {
  enum Kind { kDrop, kOtherPeer, kShift, kShorter, kTwice, kKinds };
  static inline const Algorithm* of;
  static inline int rank, kind;
  static inline int64_t t;
  static inline size_t index;
  static inline bool applied;

  // To the `index`-th of the step's actions, counted around.
  static void apply(const Problem& p, int64_t step, Program::Actions& actions) {
    auto& [transfers, local] = actions;
    const size_t all = transfers.size() + local.size();
    if (p.rank != rank || step != t || all == 0) return;
    const size_t i = index % all;
    auto& list = i < transfers.size() ? transfers : local;
    const size_t at = i < transfers.size() ? i : i - transfers.size();
    Action& action = list[at];
    Range& range = action.kind == ActionKind::kReceive ? action.into : action.from;
    // A local action has no peer, and a copy may be made twice.
    if (kind == kOtherPeer && action.peer < 0) return;
    if (kind == kTwice && action.kind == ActionKind::kCopy) return;
    applied = true;
    if (kind == kDrop) list.erase(list.begin() + static_cast<std::ptrdiff_t>(at));
    if (kind == kOtherPeer) action.peer = (action.peer + 1) % p.size;
    if (kind == kShift) range.begin += range.begin > 0 ? -1 : 1;
    if (kind == kShorter) action.from.count = action.into.count = range.count - 1;
    if (kind == kTwice) list.push_back(Action(action));
  }
};

TEST(BrokenSchedules, RandomMistakesAreSeenInEveryAlgorithm) {
  std::mt19937_64 random(7);
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->operation <= Operation::kReceive) continue;
    const bool barrier = algorithm->operation == Operation::kBarrier;
    Mutation::of = algorithm;
    Algorithm bad = *algorithm;
    bad.functions.step = [](const Problem& p, int64_t t, Step& out) {
      replay_with(*Mutation::of, Mutation::apply, p, t, out);
    };
    for (int tried = 0; tried < 300;) {
      const int size = 2 + static_cast<int>(random() % 8);
      const Case what{algorithm->operation, size, barrier ? 0 : 3 * size, 0, {.chunk = 4}};
      Mutation::rank = static_cast<int>(random() % static_cast<uint64_t>(size));
      Mutation::t = static_cast<int64_t>(
          random() % static_cast<uint64_t>(algorithm->steps(Problems(what)[0])));
      Mutation::index = random();
      Mutation::kind = static_cast<int>(random() % Mutation::kKinds);
      if (barrier && Mutation::kind != Mutation::kDrop) Mutation::kind = Mutation::kOtherPeer;
      if (barrier && size == 2) continue;  // there is no other peer
      Mutation::applied = false;
      const std::string text = disproof(bad, what, static_cast<uint64_t>(tried));
      if (!Mutation::applied) continue;
      ++tried;
      EXPECT_NE(text, "") << algorithm->name << " " << to_string(what) << ": mistake "
                          << Mutation::kind << " of rank " << Mutation::rank << " in step "
                          << Mutation::t << " at " << Mutation::index;
    }
  }
}

}  // namespace
}  // namespace torch::comms::schedule
