#include <gtest/gtest.h>

#include <algorithm>

#include "schedule/catalogue.hpp"
#include "schedule/mistake.hpp"
#include "schedule/proof.hpp"

// The proof must fail where it should: schedules with one mistake each, and what is said about
// them.
namespace torch::comms::schedule {
namespace {

// `kGood` with a mistake: what it does in each step goes through `kMistake`.
template <const Algorithm& kGood, auto kMistake>
Algorithm broken() {
  Algorithm bad = kGood;
  bad.functions.step = [](const Problem& p, int64_t t, Step& out) {
    replay_with(kGood, kMistake, p, t, out);
  };
  return bad;
}

// Seed 0 is for messages that meet; seed 1 lets one be under way.
std::string disproof_of(const Algorithm& algorithm, int size = 4, uint64_t seed = 1) {
  return disproof(algorithm, {algorithm.operation, size, 2 * size}, seed);
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Action& first(Program::Actions& actions, ActionKind verb) {
  return *std::find_if(actions.transfers.begin(), actions.transfers.end(),
                       [verb](const Action& action) { return action.kind == verb; });
}

TEST(BrokenSchedules, TheGoodOnesPass) {
  for (const Algorithm* good : {&kAllReduceRing, &kAllReduceDoubling, &kAllReduceHalving,
                                &kAllGatherDirect, &kBroadcastTree, &kReduceScatterRing})
    EXPECT_EQ(disproof_of(*good), "");
}

TEST(BrokenSchedules, AWrongPeerIsADeadlockThatNamesWhoWaitsForWhom) {
  const auto bad =
      broken<kAllReduceRing, [](const Problem& p, int64_t t, Program::Actions& actions) {
        if (p.rank == 2 && t == 1) first(actions, ActionKind::kSend).peer = 0;
      }>();
  EXPECT_PRED2(says, disproof_of(bad, 4, 0), "rank 3 in step 1 waits for 2");
}

TEST(BrokenSchedules, EverybodyReceivingFirstIsADeadlock) {
  const auto bad = broken<kAllGatherRing, [](const Problem&, int64_t t, Program::Actions& actions) {
    std::erase_if(actions.transfers, [t](const Action& action) {
      return (action.kind == ActionKind::kSend) == (t == 0);
    });
  }>();
  EXPECT_PRED2(says, disproof_of(bad, 3),
               "deadlock: rank 0 in step 0 waits for 2; rank 1 in step 0 waits for 0; "
               "rank 2 in step 0 waits for 1");
}

TEST(BrokenSchedules, AMissingStepIsSeen) {
  const auto bad =
      broken<kAllReduceRing, [](const Problem& p, int64_t t, Program::Actions& actions) {
        if (p.rank == 1 && t == 2) actions.transfers.clear();
      }>();
  EXPECT_PRED2(says, disproof_of(bad), "gets what rank 0 sent in step 2");
}

TEST(BrokenSchedules, AMessageOfAnotherStepIsSeen) {
  const auto bad =
      broken<kBroadcastChain, [](const Problem& p, int64_t t, Program::Actions& actions) {
        if (p.rank == 0 && t == 1)
          actions.transfers.push_back({.kind = ActionKind::kSignal, .peer = 3});
        if (p.rank == 3 && t == 2)
          actions.transfers.push_back({.kind = ActionKind::kWait, .peer = 0});
      }>();
  EXPECT_PRED2(says, disproof(bad, {Operation::kBroadcast, 4, 8}, 1),
               "rank 3, step 2: gets what rank 0 sent in step 1");
}

TEST(BrokenSchedules, AMessageThatNobodyTakesIsSeen) {
  const auto bad =
      broken<kAllGatherRing, [](const Problem& p, int64_t t, Program::Actions& actions) {
        if (p.rank == 0 && t == 0)
          actions.transfers.push_back({.kind = ActionKind::kSignal, .peer = 2});
      }>();
  // With no credits it is never sent, else it stays under way.
  EXPECT_PRED2(says, disproof(bad, {Operation::kAllGather, 4, 2}, 0), "waits to send to 2");
  EXPECT_PRED2(says, disproof(bad, {Operation::kAllGather, 4, 2}, 1),
               "never takes what rank 0 sent");
}

TEST(BrokenSchedules, APeerThatDoesNotExistIsSeen) {
  const auto bad = broken<kBroadcastDirect, [](const Problem&, int64_t, Program::Actions& actions) {
    actions.transfers.back().peer += 1;
  }>();
  EXPECT_PRED2(says, disproof_of(bad), "step 0: peer 4");
}

TEST(BrokenSchedules, AMessageOfAnotherSizeIsSeen) {
  const auto bad = broken<kReduceScatterRing, [](const Problem& p, int64_t t, Program::Actions& a) {
    if (p.rank == 1 && t == 0) first(a, ActionKind::kSend).from.count -= 1;
  }>();
  EXPECT_PRED2(says, disproof_of(bad), "expects another size than the 7 elements from rank 1");
}

TEST(BrokenSchedules, TwoWritersOfARangeAreSeen) {
  const auto bad =
      broken<kAllGatherDirect, [](const Problem& p, int64_t, Program::Actions& actions) {
        if (p.rank == 0) actions.transfers.back().into = first(actions, ActionKind::kReceive).into;
      }>();
  EXPECT_PRED2(says, disproof_of(bad), "rank 0, step 0: transfers of one step meet in output[");
}

TEST(BrokenSchedules, SendingWhatTheStepOverwritesIsSeen) {
  const auto bad = broken<kAllReduceDoubling, [](const Problem&, int64_t t, Program::Actions& a) {
    if (t == 1) first(a, ActionKind::kReceive).into.buffer = Buffer::kOutput;
  }>();
  EXPECT_PRED2(says, disproof_of(bad), "step 1: transfers of one step meet in output[0, 8)");
}

TEST(BrokenSchedules, AnOverlapOfOnlyAnElementIsSeen) {
  const auto bad = broken<kAllReduceHalving, [](const Problem& p, int64_t t, Program::Actions& a) {
    if (p.rank == 3 && t == 3) first(a, ActionKind::kReceive).into.begin += 1;
  }>();
  EXPECT_PRED2(says, disproof_of(bad), "rank 3, step 3: transfers of one step meet");
}

TEST(BrokenSchedules, AnOperandHalfUnderItsTargetIsSeen) {
  const auto bad =
      broken<kAllReduceOneShot, [](const Problem& p, int64_t, Program::Actions& actions) {
        if (p.rank == 0) actions.local.front().other.begin = 1;
      }>();
  EXPECT_PRED2(says, disproof_of(bad), "scratch[1, 9) overlaps its target scratch[0, 8)");
}

TEST(BrokenSchedules, ReadingWhatWasNeverWrittenIsSeen) {
  const auto bad =
      broken<kAllReduceRing, [](const Problem& p, int64_t t, Program::Actions& actions) {
        if (p.rank == 1 && t == 0) first(actions, ActionKind::kSend).from.buffer = Buffer::kOutput;
      }>();
  EXPECT_PRED2(says, disproof_of(bad), "rank 1, step 0: reads output[0, 1), which was never");
}

TEST(BrokenSchedules, TooLittleScratchIsSeen) {
  Algorithm bad = kReduceScatterRing;
  bad.functions.scratch = [](const Problem& p) {
    return kReduceScatterRing.functions.scratch(p) - 1;
  };
  EXPECT_PRED2(says, disproof_of(bad), "is outside of a buffer of 15");
}

TEST(BrokenSchedules, WritingToTheInputIsSeen) {
  const auto bad = broken<kAllReduceHalving, [](const Problem& p, int64_t t, Program::Actions& a) {
    if (p.rank == 0 && t == 0)
      a.local.push_back({.kind = ActionKind::kCopy,
                         .from = {Buffer::kInput, 0, 1},
                         .into = {Buffer::kInput, 7, 1}});
  }>();
  EXPECT_PRED2(says, disproof_of(bad), "rank 0, step 4: input 7 was written to");
}

TEST(BrokenSchedules, AForgottenContributionIsSeen) {
  const auto bad =
      broken<kAllReduceRing, [](const Problem& p, int64_t t, Program::Actions& actions) {
        if (p.rank == 1 && t == 1)
          first(actions, ActionKind::kReceiveReduce).kind = ActionKind::kReceive;
      }>();
  EXPECT_PRED2(says, disproof_of(bad), "is wrong");
}

TEST(BrokenSchedules, AContributionThatCountsTwiceIsSeen) {
  const auto bad = broken<kReduceScatterDirect, [](const Problem& p, int64_t, Program::Actions& a) {
    if (p.rank == 1) a.local.back().other = a.local.front().other;
  }>();
  EXPECT_PRED2(says, disproof_of(bad), "output 0 of rank 1 is wrong");
}

TEST(BrokenSchedules, ABlockInTheWrongPlaceIsSeen) {
  const auto bad =
      broken<kAllToAllDirect, [](const Problem& p, int64_t, Program::Actions& actions) {
        if (p.rank == 0) std::swap(actions.transfers[1].into, actions.transfers[3].into);
      }>();
  EXPECT_PRED2(says, disproof_of(bad), "is wrong");
}

TEST(BrokenSchedules, AnotherOrderOfAdditionOnOneRankIsSeen) {
  const auto bad = broken<kAllReduceDoubling, [](const Problem& p, int64_t t, Program::Actions& a) {
    if (p.rank == 3 && t == 1) std::swap(a.local.front().from, a.local.front().other);
  }>();
  EXPECT_PRED2(says, disproof_of(bad), "rank 3 was added in another order than on rank 0");
}

TEST(BrokenSchedules, AClaimToAddInRankOrderIsChecked) {
  Algorithm bad = kAllReduceTree;
  bad.reduction_order = ReductionOrder::kRankOrder;
  EXPECT_PRED2(says, disproof_of(bad), "is wrong");
}

TEST(BrokenSchedules, EveryNumberOfTheCostIsChecked) {
  static constexpr int64_t Cost::* kNumbers[] = {&Cost::messages, &Cost::sent, &Cost::received,
                                                 &Cost::reduced, &Cost::scratch};
  static int64_t Cost::* wrong;
  for (const auto number : kNumbers)
    for (const Algorithm* good : {&kReduceScatterDirect, &kReduceScatterRing, &kReduceTree}) {
      wrong = number;
      static const Algorithm* of;
      of = good;
      Algorithm bad = *good;
      bad.functions.cost = [](const Problem& p) {
        Cost cost = of->functions.cost(p);
        cost.*wrong += 1;
        return cost;
      };
      EXPECT_PRED2(says, disproof_of(bad), "the formula says");
    }
}

TEST(BrokenSchedules, AStepInWhichNothingHappensIsSeen) {
  Algorithm bad = kBroadcastTree;
  bad.functions.steps = [](const Problem& p) { return kBroadcastTree.functions.steps(p) + 1; };
  EXPECT_PRED2(says, disproof_of(bad), "1 steps in which nothing is sent");
}

}  // namespace
}  // namespace torch::comms::schedule
