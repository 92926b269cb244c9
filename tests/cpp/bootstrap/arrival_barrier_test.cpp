#include "bootstrap/arrival_barrier.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <future>
#include <latch>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "bootstrap/memory_kv.hpp"

namespace torch::comms::bootstrap {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

ArrivalBarrierParams rank_of(int rank, int size, milliseconds limit = seconds(20)) {
  return {.key_scope = "test",
          .name = "train",
          .rank = rank,
          .size = size,
          .process_description = "process " + std::to_string(1000 + rank),
          .timeout = {limit, "KNOB"},
          .deadline = Deadline(limit)};
}

struct Outcome {
  std::optional<ArrivalBarrierResult> arrival;
  std::optional<CommError> error;
  int messages = 0;
};

Outcome check_in_on(SharedMap& map, const ArrivalBarrierParams& self) {
  MemoryKeyValue kv(map);
  Outcome outcome;
  try {
    outcome.arrival = wait_for_all_ranks(kv, self);
  } catch (const CommError& e) {
    outcome.error = e;
  }
  outcome.messages = kv.messages;
  return outcome;
}

// All at once, one thread each.
std::vector<Outcome> together(SharedMap& map, const std::vector<ArrivalBarrierParams>& ranks) {
  std::vector<Outcome> outcomes(ranks.size());
  std::latch ready(static_cast<std::ptrdiff_t>(ranks.size()));
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      ready.arrive_and_wait();
      outcomes[i] = check_in_on(map, ranks[i]);
    });
  threads.clear();
  return outcomes;
}

std::vector<ArrivalBarrierParams> world(int size, milliseconds limit = seconds(20)) {
  std::vector<ArrivalBarrierParams> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank_of(rank, size, limit));
  return ranks;
}

std::vector<ArrivalBarrierParams> without(std::vector<ArrivalBarrierParams> ranks,
                                          const std::vector<int>& absent) {
  std::erase_if(
      ranks, [&](const ArrivalBarrierParams& c) { return std::ranges::count(absent, c.rank) > 0; });
  return ranks;
}

void expect_error(const Outcome& outcome, Errc code, const std::vector<std::string>& fragments) {
  ASSERT_TRUE(outcome.error.has_value());
  const std::string text = outcome.error->what();
  EXPECT_EQ(outcome.error->code(), code) << text;
  for (const auto& fragment : fragments) EXPECT_NE(text.find(fragment), std::string::npos) << text;
}

int keys_left(SharedMap& map, const std::string& part) {
  const std::lock_guard lock(map.mutex);
  return static_cast<int>(std::ranges::count_if(
      map.values, [&](const auto& row) { return row.first.find(part) != std::string::npos; }));
}

TEST(CheckIn, LetsAWorldThroughWithTheSameKeysOnEveryRank) {
  for (const int size : {1, 2, 3, 64}) {
    SharedMap map;
    const auto outcomes = together(map, world(size));
    for (const auto& outcome : outcomes) {
      ASSERT_TRUE(outcome.arrival.has_value()) << outcome.error->what();
      EXPECT_EQ(outcome.arrival->key_prefix, outcomes[0].arrival->key_prefix);
      EXPECT_EQ(outcome.arrival->identity, outcomes[0].arrival->identity);
      EXPECT_EQ(outcome.arrival->attempt, 0);
    }
  }
}

TEST(CheckIn, TakesAConstantNumberOfMessagesPerRank) {
  for (const int size : {2, 16, 64}) {
    SharedMap map;
    for (const auto& outcome : together(map, world(size))) EXPECT_LE(outcome.messages, 12) << size;
  }
}

TEST(CheckIn, TheSameNameAgainGetsNewKeysAndLeavesNoneOfTheOldOnes) {
  SharedMap map;
  std::vector<std::string> seen;
  std::set<uint64_t> identities;
  size_t keys_after_second = 0;
  for (int round = 0; round < 10; ++round) {
    const auto outcomes = together(map, world(4));
    for (const auto& outcome : outcomes) {
      ASSERT_TRUE(outcome.arrival.has_value()) << outcome.error->what();
      EXPECT_EQ(outcome.arrival->key_prefix, outcomes[0].arrival->key_prefix);
      EXPECT_EQ(outcome.arrival->attempt, round);
    }
    EXPECT_TRUE(identities.insert(outcomes[0].arrival->identity).second);
    EXPECT_EQ(std::ranges::count(seen, outcomes[0].arrival->key_prefix), 0);
    seen.push_back(outcomes[0].arrival->key_prefix);
    if (round == 1) keys_after_second = map.values.size();
  }
  EXPECT_EQ(map.values.size(), keys_after_second);
}

std::vector<ArrivalBarrierParams> with_prepare(std::vector<ArrivalBarrierParams> ranks) {
  for (auto& each : ranks) each.prepare = [] {};
  return ranks;
}

// Also to those who come long after it.
TEST(CheckIn, ARankThatCannotBringWhatItNeedsIsNamedToTheOthers) {
  for (const int without_it : {0, 2}) {
    SharedMap map;
    std::promise<void> failed;
    const auto after = failed.get_future().share();
    auto ranks = world(4);
    for (auto& each : ranks) each.prepare = [after] { after.wait(); };
    ranks[static_cast<size_t>(without_it)].prepare = [&] {
      failed.set_value();
      throw CommError(Errc::kUnsupported, "no such device");
    };
    const auto outcomes = together(map, ranks);
    for (int rank = 0; rank < 4; ++rank) {
      const auto& outcome = outcomes[static_cast<size_t>(rank)];
      if (rank == without_it) {
        expect_error(outcome, Errc::kUnsupported, {"no such device"});
        continue;
      }
      expect_error(outcome, Errc::kPeerFailed,
                   {"rank " + std::to_string(without_it), "no such device"});
      EXPECT_EQ(outcome.error->context().peer, without_it);
    }
    EXPECT_EQ(keys_left(map, "/unfit"), 0);
    for (const auto& outcome : together(map, with_prepare(world(4))))
      EXPECT_TRUE(outcome.arrival.has_value()) << "a retry";
  }
}

TEST(CheckIn, ARankThatDoesNotComeBackFromWhatItNeedsHasNotArrived) {
  SharedMap map;
  auto ranks = with_prepare(world(3, milliseconds(100)));
  ranks[2].prepare = [&map] {
    while (keys_left(map, "/verdict") == 0) std::this_thread::yield();
  };
  const auto outcomes = together(map, ranks);
  for (int rank = 0; rank < 2; ++rank) {
    expect_error(outcomes[static_cast<size_t>(rank)], Errc::kTimeout,
                 {"rank 2 of 3 did not arrive"});
    EXPECT_EQ(outcomes[static_cast<size_t>(rank)].error->context().peer, 2);
  }
}

TEST(CheckIn, WhereAllLackWhatTheyNeedEachThrowsItsOwnReason) {
  SharedMap map;
  auto ranks = world(3);
  for (auto& each : ranks)
    each.prepare = [rank = each.rank] {
      throw CommError(Errc::kUnsupported, "device " + std::to_string(rank) + " is broken");
    };
  const auto outcomes = together(map, ranks);
  for (int rank = 0; rank < 3; ++rank)
    expect_error(outcomes[static_cast<size_t>(rank)], Errc::kUnsupported,
                 {"device " + std::to_string(rank) + " is broken"});
  EXPECT_EQ(keys_left(map, "/unfit"), 0);
}

TEST(CheckIn, NamesThatLookLikePathsDoNotMeet) {
  SharedMap map;
  std::vector<ArrivalBarrierParams> ranks;
  for (const char* name : {"a", "a/0", "a/0/rank", "1:a/0", ""}) {
    for (int rank = 0; rank < 2; ++rank) {
      ranks.push_back(rank_of(rank, 2));
      ranks.back().name = name;
    }
  }
  const auto outcomes = together(map, ranks);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    ASSERT_TRUE(outcomes[i].arrival.has_value()) << outcomes[i].error->what();
    for (size_t j = 0; j < i; ++j)
      EXPECT_EQ(outcomes[i].arrival->key_prefix == outcomes[j].arrival->key_prefix,
                ranks[i].name == ranks[j].name);
  }
}

TEST(CheckIn, NamesTheMissingRanksOnEveryRankThatCame) {
  SharedMap map;
  const auto ranks = without(world(8, seconds(1)), {1, 3, 4, 5});
  for (const auto& outcome : together(map, ranks)) {
    expect_error(
        outcome, Errc::kTimeout,
        {"ranks 1, 3-5 of 8 did not arrive within 1 s", "store memory", "'train'", "raise KNOB"});
    EXPECT_EQ(outcome.error->context().peer, -1);
  }
}

TEST(CheckIn, TheOnlyMissingRankIsTheErrorsPeer) {
  SharedMap map;
  for (const auto& outcome : together(map, without(world(64, seconds(2)), {17}))) {
    expect_error(outcome, Errc::kTimeout, {"rank 17 of 64 did not arrive"});
    EXPECT_EQ(outcome.error->context().peer, 17);
  }
}

TEST(CheckIn, TellsWhereAMissingRankWasLastSeen) {
  SharedMap map;
  auto elsewhere = rank_of(1, 2, milliseconds(50));
  elsewhere.name = "eval";
  ASSERT_TRUE(check_in_on(map, elsewhere).error.has_value());
  expect_error(
      check_in_on(map, rank_of(0, 2, milliseconds(50))), Errc::kTimeout,
      {"rank 1 of 2 did not arrive", "rank 1 was last seen creating 'eval', process 1001"});
}

TEST(CheckIn, TheShortestLimitEndsTheWaitForAll) {
  SharedMap map;
  auto ranks = without(world(3), {2});
  ranks[0] = rank_of(0, 3, milliseconds(100));
  for (const auto& outcome : together(map, ranks))
    expect_error(outcome, Errc::kTimeout, {"rank 2 of 3 did not arrive within 0.1 s", "of rank 0"});
}

TEST(CheckIn, ARetryAfterATimeoutMeetsTheRankThatWasLate) {
  SharedMap map;
  for (const auto& outcome : together(map, without(world(3, milliseconds(50)), {2})))
    ASSERT_TRUE(outcome.error.has_value());
  const auto outcomes = together(map, world(3));
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.arrival.has_value()) << outcome.error->what();
    EXPECT_EQ(outcome.arrival->key_prefix, outcomes[0].arrival->key_prefix);
  }
}

TEST(CheckIn, ALateRankDoesNotJoinAnAttemptThatTheOthersGaveUp) {
  SharedMap map;
  ASSERT_TRUE(check_in_on(map, rank_of(0, 2, milliseconds(50))).error.has_value());
  expect_error(check_in_on(map, rank_of(1, 2, milliseconds(50))), Errc::kTimeout, {"rank 0 of 2"});
}

TEST(CheckIn, ManyRetriesWithRanksComingAndGoingEndInOneWorld) {
  SharedMap map;
  for (int round = 0; round < 6; ++round)
    together(map, without(world(4, milliseconds(20)), {round % 4, (round + 1) % 4}));
  for (const auto& outcome : together(map, world(4)))
    ASSERT_TRUE(outcome.arrival.has_value()) << outcome.error->what();
}

// Limits that pass while the last rank arrives: either all go or none, never some.
TEST(CheckIn, ATimeoutAndTheLastArrivalNeverSplitTheWorld) {
  int went = 0;
  for (int round = 0; round < 40; ++round) {
    SharedMap map;
    auto ranks = world(4, milliseconds(1 + round % 4));
    const auto outcomes = together(map, ranks);
    const auto arrived =
        std::ranges::count_if(outcomes, [](const Outcome& o) { return o.arrival.has_value(); });
    EXPECT_TRUE(arrived == 0 || arrived == 4) << arrived;
    went += arrived == 4;
  }
  RecordProperty("worlds_that_formed", went);
}

TEST(CheckIn, ADuplicateRankIsNamedToAll) {
  SharedMap map;
  auto ranks = without(world(3), {2});
  ranks.push_back(rank_of(1, 3));
  for (const auto& outcome : together(map, ranks)) {
    expect_error(outcome, Errc::kMismatch, {"rank 1 is here twice", "process 1001", "own rank"});
    EXPECT_EQ(outcome.error->context().peer, outcome.error->context().rank == 1 ? -1 : 1);
  }
}

TEST(CheckIn, DifferentSizesAreNamedToAll) {
  SharedMap map;
  const auto outcomes = together(map, {rank_of(0, 3), rank_of(1, 4)});
  for (const auto& outcome : outcomes)
    expect_error(outcome, Errc::kMismatch, {"disagree about their number", "3 ranks", "4 ranks"});
}

std::vector<ArrivalBarrierParams> asking(std::vector<ArrivalBarrierParams> ranks,
                                         const std::vector<std::string>& backends) {
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i].backend = backends[i];
  return ranks;
}

TEST(CheckIn, ADifferentBackendIsNamedToAllBeforeAnybodyGoesOn) {
  SharedMap map;
  for (const auto& outcome : together(map, asking(world(4), {"gloo", "gloo", "ctran", "gloo"}))) {
    expect_error(outcome, Errc::kMismatch,
                 {"the ranks of 'train' ask for different backends: rank 2 of 4 for 'ctran', "
                  "ranks 0, 1, 3 of 4 for 'gloo'"});
    EXPECT_EQ(outcome.error->context().peer, outcome.error->context().rank == 2 ? -1 : 2);
    EXPECT_LE(outcome.messages, 20);
  }
  for (const auto& outcome : together(map, asking(world(4), {"gloo", "gloo", "gloo", "gloo"})))
    ASSERT_TRUE(outcome.arrival.has_value()) << outcome.error->what();
}

TEST(CheckIn, OfTwoBackendsWithEquallyManyRanksNoneIsToBlame) {
  SharedMap map;
  for (const auto& outcome : together(map, asking(world(2), {"gloo", "nccl"}))) {
    expect_error(outcome, Errc::kMismatch, {"rank 0 of 2 for 'gloo', rank 1 of 2 for 'nccl'"});
    EXPECT_EQ(outcome.error->context().peer, -1);
  }
}

// Another thread of a rank may be creating something else.
TEST(CheckIn, ABackendThatIsNotKnownAnyMoreIsSaidToBeSo) {
  SharedMap map;
  const auto ranks = asking(world(2), {"gloo", "ctran"});
  std::optional<Outcome> first;
  std::jthread waiting([&] { first = check_in_on(map, ranks[0]); });
  while (keys_left(map, "train/0/alike") == 0) std::this_thread::yield();
  MemoryKeyValue(map).set("test/seen/0", "'eval' with backend 'ctran', process 1000");
  expect_error(check_in_on(map, ranks[1]), Errc::kMismatch,
               {"rank 0 of 2 for an unknown backend", "rank 1 of 2 for 'ctran'"});
}

TEST(CheckIn, OfALargeWorldTheFirstRanksBackendsAreLookedAt) {
  constexpr int kSize = 2000;
  auto self = rank_of(0, kSize, milliseconds(10));
  self.backend = "gloo";
  SharedMap one, map;
  check_in_on(one, self);
  for (const std::string key_name : {"arrived", "alike"}) {
    const auto key = "test/5:train/0/" + key_name;
    map.values[key] = std::to_string(std::stoll(one.values[key]) * (kSize - 1));
  }
  for (int rank = 0; rank + 1 < kSize; ++rank)
    map.values["test/seen/" + std::to_string(rank)] = one.values["test/seen/0"];
  auto last = rank_of(kSize - 1, kSize);
  last.backend = "ctran";
  const auto outcome = check_in_on(map, last);
  expect_error(outcome, Errc::kMismatch,
               {"rank 1999 of 2000 for 'ctran', ranks 0-1023 of 2000 for 'gloo'", "from 1024 on"});
  EXPECT_LE(outcome.messages, 1050);
}

TEST(CheckIn, NoTwoOfOurBackendsAreTakenForTheSame) {
  const std::vector<std::string> backends{"gloo",      "ctran", "fake",  "nccl", "ncclx",
                                          "nccl-lazy", "rccl",  "rcclx", "xccl", ""};
  for (size_t i = 0; i < backends.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      SharedMap map;
      for (const auto& outcome : together(map, asking(world(2), {backends[i], backends[j]})))
        expect_error(outcome, Errc::kMismatch, {"different backends"});
    }
}

TEST(CheckIn, ARankThatComesAfterAMismatchHearsOfItAndMayRetry) {
  SharedMap map;
  together(map, {rank_of(0, 3), rank_of(1, 4)});
  expect_error(check_in_on(map, rank_of(2, 3)), Errc::kMismatch, {"3 ranks", "4 ranks"});
  for (const auto& outcome : together(map, world(3)))
    ASSERT_TRUE(outcome.arrival.has_value()) << outcome.error->what();
}

TEST(CheckIn, ASecondWorldOnTheStoreHearsOfTheFirst) {
  SharedMap map;
  ASSERT_TRUE(check_in_on(map, rank_of(0, 1)).arrival.has_value());
  expect_error(check_in_on(map, rank_of(1, 2, milliseconds(50))), Errc::kTimeout,
               {"rank 0 of 2", "the last communicator 'train'", "1 rank", "2 ranks"});
}

TEST(CheckIn, ARankThatLosesTheStoreTakesNobodyElseDown) {
  SharedMap map;
  MemoryKeyValue broken(map);
  broken.lost_after = 3;
  EXPECT_THROW(wait_for_all_ranks(broken, rank_of(1, 2)), CommError);
  // What the lost rank left behind must not look like an arrival.
  expect_error(check_in_on(map, rank_of(0, 2, milliseconds(50))), Errc::kTimeout, {});
}

TEST(CheckIn, RemindsOnceWhenTheOthersTakeLong) {
  SharedMap map;
  std::vector<std::string> reports;
  auto self = rank_of(0, 3, milliseconds(300));
  self.report_after = milliseconds(20);
  self.report = [&](const std::string& text) { reports.push_back(text); };
  check_in_on(map, self);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NE(reports[0].find("still waiting for ranks 1, 2 of 3 to create 'train'"),
            std::string::npos)
      << reports[0];
}

TEST(CheckIn, DoubtsAreAskedForBeforeTheFirstRankSaysThatItWaits) {
  SharedMap map;
  auto self = rank_of(0, 3, seconds(60));
  self.report_after = seconds(50);
  const auto begin = std::chrono::steady_clock::now();
  self.report = [](const std::string& text) { ADD_FAILURE() << text; };
  self.conflict_check = [] { return std::optional<std::string>("rank 1 has failed"); };
  const auto outcome = check_in_on(map, self);
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->why().find("rank 1 has failed"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, self.report_after);
}

TEST(CheckIn, WhoHasDoubtsSaysThatItWaitsAsWell) {
  SharedMap map;
  std::vector<std::string> reports;
  auto self = rank_of(0, 3, seconds(20));
  self.report_after = milliseconds(20);
  self.report = [&](const std::string& text) { reports.push_back(text); };
  self.conflict_check = [&] {
    return reports.empty() ? std::nullopt : std::optional<std::string>("enough");
  };
  EXPECT_TRUE(check_in_on(map, self).error);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_NE(reports[0].find("still waiting for ranks 1, 2 of 3"), std::string::npos) << reports[0];
}

TEST(CheckIn, FindsFewMissingAmongManyWithFewMessages) {
  SharedMap map;
  constexpr int kSize = 4096;
  for (int rank = 1; rank < kSize; ++rank)
    if (rank != 2000) map.values["test/5:train/0/rank/" + std::to_string(rank)] = "1";
  const auto outcome = check_in_on(map, rank_of(0, kSize, milliseconds(10)));
  expect_error(outcome, Errc::kTimeout, {"rank 2000 of 4096 did not arrive"});
  EXPECT_LE(outcome.messages, 48);
}

TEST(CheckIn, AWorldThatIsNearlyAllMissingStaysReadable) {
  SharedMap map;
  const auto outcome = check_in_on(map, rank_of(0, 100'000, milliseconds(10)));
  expect_error(outcome, Errc::kTimeout, {"ranks 1-256 of 100000 did not arrive"});
  EXPECT_LE(outcome.messages, 1200);
}

TEST(CheckIn, RefusesARankOutsideItsWorld) {
  SharedMap map;
  for (const auto& [rank, size] : {std::pair{2, 2}, {-1, 2}, {0, 0}, {0, 1'000'001}}) {
    const auto outcome = check_in_on(map, rank_of(rank, size));
    expect_error(outcome, Errc::kInvalidArgument, {});
    EXPECT_EQ(outcome.messages, 0);
  }
}

TEST(CheckIn, ATextThatNoRankWroteIsAnError) {
  for (const char* garbage : {"", "G", "Gx 3 ranks", "Z-1 3", "G99999999999999999999 x"}) {
    SharedMap map;
    map.values["test/5:train/0/verdict"] = garbage;
    expect_error(check_in_on(map, rank_of(0, 2)), Errc::kSystem, {"no rank wrote"});
  }
  SharedMap map;
  map.values["test/5:train/next"] = "soon";
  expect_error(check_in_on(map, rank_of(0, 2)), Errc::kSystem, {"no rank wrote", "soon"});
  EXPECT_EQ(keys_left(map, "rank/"), 0);
}

TEST(CheckIn, ARankWithDoubtsEndsItForAll) {
  SharedMap map;
  auto ranks = without(world(3), {2});
  int asked = 0;
  ranks[1].conflict_check = [&]() -> std::optional<std::string> {
    return ++asked < 3 ? std::nullopt : std::optional<std::string>("rank 2 will not come");
  };
  for (const auto& outcome : together(map, ranks)) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), Errc::kMismatch);
    EXPECT_NE(outcome.error->why().find("rank 2 will not come"), std::string::npos);
  }
  EXPECT_EQ(asked, 3);
}

TEST(CheckIn, WithoutReasonADoubtChangesNothing) {
  SharedMap map;
  auto ranks = world(4);
  for (auto& rank : ranks) rank.conflict_check = [] { return std::nullopt; };
  for (const auto& outcome : together(map, ranks)) EXPECT_TRUE(outcome.arrival);
  ranks = without(world(3, milliseconds(50)), {1});
  for (auto& rank : ranks) rank.conflict_check = [] { return std::nullopt; };
  for (const auto& outcome : together(map, ranks)) {
    ASSERT_TRUE(outcome.error);
    EXPECT_EQ(outcome.error->code(), Errc::kTimeout);
  }
}

}  // namespace
}  // namespace torch::comms::bootstrap
