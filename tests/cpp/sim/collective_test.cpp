// Simulated times against closed forms of LogGP, and what every simulation must obey.

#include "sim/collective.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "schedule/patterns/fold.hpp"

namespace torch::comms::sim {
namespace {

using schedule::Operation;

constexpr LogGPParameters kWire{
    .latency_us = 2, .overhead_us = 0.5, .gap_us = 0.25, .byte_ns = 0.125};

CollectiveRun run_of(Operation operation, std::string_view name, int ranks, int64_t bytes) {
  CollectiveRun run;
  run.algorithm = schedule::find_algorithm(operation, name);
  run.ranks = ranks;
  run.bytes = bytes;
  run.network.between = kWire;
  run.network.compute_ns = 0;
  return run;
}

// overhead + (k - 1) * byte + latency + overhead, in microseconds.
double message_us(int64_t bytes) {
  return 2 * kWire.overhead_us + kWire.latency_us +
         static_cast<double>(bytes > 1 ? bytes - 1 : 0) * kWire.byte_ns / 1000;
}

TEST(Collective, ABarrierTakesItsRounds) {
  for (const int ranks : {2, 3, 16, 100, 1000, 131072}) {
    const auto result = simulate(run_of(Operation::kBarrier, "dissemination", ranks, 0));
    EXPECT_DOUBLE_EQ(result.time_us, schedule::ceil_log2(ranks) * message_us(0)) << ranks;
    EXPECT_EQ(result.messages.max, schedule::ceil_log2(ranks));
  }
}

TEST(Collective, ARingTakesTwoTimesItsHops) {
  for (const int ranks : {2, 5, 64, 4096}) {
    const int64_t block = 1000;
    const auto result = simulate(run_of(Operation::kAllReduce, "ring", ranks, block * 4 * ranks));
    EXPECT_NEAR(result.time_us, 2 * (ranks - 1) * message_us(block * 4), 1e-6) << ranks;
    EXPECT_EQ(result.bytes_sent.max, 2 * (ranks - 1) * block * 4);
    EXPECT_EQ(result.enumerated, 1);
  }
}

TEST(Collective, WhatTakesLongerThanThereIsTimeIsRefused) {
  for (double LogGPParameters::* const cost :
       {&LogGPParameters::latency_us, &LogGPParameters::overhead_us, &LogGPParameters::gap_us,
        &LogGPParameters::byte_ns})
    for (const auto& [name, value] : {std::pair("ring", 1e300),
                                      {"ring", 1e11},
                                      {"ring", 1.1e12},
                                      {"one_shot", 1e300},
                                      {"one_shot", 3e12}}) {
      auto run = run_of(Operation::kAllReduce, name, 64, 1 << 20);
      run.network.between.*cost = value;
      EXPECT_THROW(simulate(run), std::invalid_argument) << name << ", " << value;
    }
  auto run = run_of(Operation::kAllReduce, "ring", 64, 1 << 20);
  run.network.compute_ns = 1e300;
  EXPECT_THROW(simulate(run), std::invalid_argument);
  run.network.compute_ns = 0;
  run.faults = {.delay = 0.5, .delay_us = 1e300};
  EXPECT_THROW(simulate(run), std::invalid_argument);
  run.faults = {.drop = 0.99, .retry_us = 1e300};
  EXPECT_THROW(simulate(run), std::invalid_argument);
  run.faults = {};
  run.network.between.latency_us = 1e9;  // 126 * 1000 s: 1.5 days
  EXPECT_NEAR(simulate(run).time_us, 126e9, 1e6);
}

TEST(Collective, ALeafOfMoreRanksThanCanBeCountedIsRefused) {
  auto run = run_of(Operation::kAllReduce, "ring", 64, 1 << 20);
  run.network.local_size = run.network.hosts_per_leaf = 1'000'000;
  EXPECT_THROW(simulate(run), std::invalid_argument);
}

TEST(Collective, AdditionsTakeTheirTime) {
  auto run = run_of(Operation::kAllReduce, "ring", 8, 8 * 4000);
  const double without = simulate(run).time_us;
  run.network.compute_ns = 0.5;
  EXPECT_NEAR(simulate(run).time_us - without, 7 * 4000 * 0.5 / 1000, 1e-6);
}

TEST(Collective, AFlatBroadcastIsLimitedByTheRootsNic) {
  const int ranks = 100;
  const int64_t bytes = 4000;
  const auto result = simulate(run_of(Operation::kBroadcast, "direct", ranks, bytes));
  const double serial = (static_cast<double>(bytes) - 1) * kWire.byte_ns / 1000;
  // The first message leaves after its overhead; each next one a gap after the end of the last.
  EXPECT_NEAR(result.time_us, message_us(bytes) + (ranks - 2) * (serial + kWire.gap_us), 1e-6);
}

TEST(Collective, DoublingTakesItsRoundsForPowersOfTwo) {
  const auto result = simulate(run_of(Operation::kAllReduce, "doubling", 1024, 4096));
  EXPECT_NEAR(result.time_us, 10 * message_us(4096), 1e-6);
  EXPECT_EQ(result.enumerated, 1024);
}

// Every algorithm that has a formula: what was sent is what it says.
TEST(Collective, MessagesAndBytesAreTheCostOfEveryAlgorithm) {
  for (const auto* algorithm : schedule::algorithms()) {
    if (algorithm->operation <= Operation::kReceive) continue;
    for (const int ranks : {1, 2, 8, 24, 64}) {
      auto run = run_of(algorithm->operation, algorithm->name, ranks, ranks * 480);
      run.network.local_size = ranks % 8 == 0 ? 8 : 1;
      run.options.rings = 3;
      run.options.chunk = 100;
      const auto result = simulate(run);
      const auto where = std::string(algorithm->name) + " of " +
                         std::string(operation_name(algorithm->operation)) + ", " +
                         std::to_string(ranks);
      if (algorithm->is_cost_upper_bound) {
        EXPECT_LE(result.messages.max, result.cost.messages) << where;
        EXPECT_LE(result.bytes_sent.max, result.cost.sent * 4) << where;
      } else {
        EXPECT_EQ(result.messages.max, result.cost.messages) << where;
        EXPECT_EQ(result.bytes_sent.max, result.cost.sent * 4) << where;
      }
    }
  }
}

TEST(Collective, OneLeafFindsWhatAllRanksFind) {
  for (const auto* algorithm : schedule::algorithms()) {
    if (!algorithm->is_rotation_invariant) continue;
    auto run = run_of(algorithm->operation, algorithm->name, 64, 64 * 400);
    run.network.local_size = 4;
    run.network.rails = 2;
    run.network.hosts_per_leaf = 4;
    run.network.oversubscription = 2;
    const auto folded = simulate(run);
    EXPECT_EQ(folded.enumerated, 16) << algorithm->name;
    EXPECT_GT(folded.sampled, 0);
    run.faults.delay = 1e-300;  // never happens, but might: so all of them run
    const auto all = simulate(run);
    EXPECT_EQ(all.enumerated, 64);
    EXPECT_NEAR(folded.time_us, all.time_us, all.time_us * 0.02) << algorithm->name;
    EXPECT_EQ(folded.messages.max, all.messages.max);
    EXPECT_EQ(folded.bytes_sent.max, all.bytes_sent.max);
  }
}

TEST(Collective, SaysHowManyStepsOfOthersWereCompared) {
  EXPECT_EQ(simulate(run_of(Operation::kBarrier, "dissemination", 4096, 0)).sampled, 256);
  EXPECT_EQ(simulate(run_of(Operation::kAllToAll, "direct", 4096, 4)).sampled, 8);
  EXPECT_EQ(simulate(run_of(Operation::kAllReduce, "doubling", 64, 4)).sampled, 0);
}

TEST(Collective, UnequalBlocksAreNotFolded) {
  auto run = run_of(Operation::kAllReduce, "ring", 10, 4 * 1001);
  EXPECT_EQ(simulate(run).enumerated, 10);
}

TEST(Collective, MoreOfAnythingIsNeverFaster) {
  const auto time = [](auto change) {
    auto run = run_of(Operation::kAllReduce, "two_level", 64, 1 << 20);
    run.network.local_size = 8;
    run.network.hosts_per_leaf = 4;
    change(run);
    return simulate(run).time_us;
  };
  const double base = time([](CollectiveRun&) {});
  EXPECT_GT(time([](CollectiveRun& run) { run.bytes *= 2; }), base);
  EXPECT_GT(time([](CollectiveRun& run) { run.ranks *= 2; }), base);
  EXPECT_GT(time([](CollectiveRun& run) { run.network.between.latency_us *= 2; }), base);
  EXPECT_GT(time([](CollectiveRun& run) { run.network.between.overhead_us *= 2; }), base);
  EXPECT_GT(time([](CollectiveRun& run) { run.network.between.byte_ns *= 2; }), base);
  EXPECT_GT(time([](CollectiveRun& run) { run.network.rails = 2; }), base);
  EXPECT_GT(time([](CollectiveRun& run) { run.network.spine_us *= 2; }), base);
  EXPECT_GT(time([](CollectiveRun& run) { run.network.oversubscription = 8; }), base);
  double last = base;
  for (const double drop : {0.001, 0.01, 0.1}) {
    const double now = time([&](CollectiveRun& run) { run.faults.drop = drop; });
    EXPECT_GE(now, last) << drop;
    last = now;
  }
  EXPECT_GT(last, base);
}

TEST(Collective, ARunDependsOnItsSeedAlone) {
  auto run = run_of(Operation::kAllReduce, "halving", 100, 4000);
  run.faults = {.seed = 5, .drop = 0.02, .delay = 0.1};
  const auto once = simulate(run), again = simulate(run);
  EXPECT_EQ(once.time_us, again.time_us);
  EXPECT_EQ(once.events, again.events);
  EXPECT_EQ(once.drops, again.drops);
  EXPECT_GT(once.drops, 0);
  run.faults.seed = 6;
  EXPECT_NE(simulate(run).drops, once.drops);
}

TEST(Collective, WhatCannotBeSimulatedIsRefusedInWords) {
  const auto refusal = [](const CollectiveRun& run) -> std::string {
    try {
      simulate(run);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  auto run = run_of(Operation::kAllReduce, "two_level", 12, 400);
  run.network.local_size = 8;
  EXPECT_NE(refusal(run).find("same number of ranks on each host"), std::string::npos);
  run = run_of(Operation::kReduce, "chain", 131072, 400);
  EXPECT_NE(refusal(run).find("take fewer ranks"), std::string::npos);
  run = run_of(Operation::kAllReduce, "ring", 8, 400);
  run.network.oversubscription = 0.5;
  EXPECT_NE(refusal(run).find("at least 1"), std::string::npos);
}

TEST(Collective, MemoryOfARankIsBounded) {
  auto run = run_of(Operation::kAllReduce, "two_level", 16384, 1 << 20);
  run.network.local_size = 8;
  const auto result = simulate(run);
  EXPECT_EQ(result.enumerated, 16384);
  EXPECT_LT(result.bytes_per_rank, 2048);
}

TEST(Collective, TheCallerIsAskedNowAndThen) {
  int beats = 0;
  simulate(run_of(Operation::kAllReduce, "doubling", 65536, 4), [&] { ++beats; });
  EXPECT_GT(beats, 5);
  EXPECT_THROW(simulate(run_of(Operation::kAllReduce, "doubling", 65536, 4),
                        [] { throw std::runtime_error("enough"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace torch::comms::sim
