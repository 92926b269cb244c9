// The exchange at sizes that no test could start as processes.

#include "sim/bootstrap.hpp"

#include <gtest/gtest.h>

namespace torch::comms::sim {
namespace {

BootstrapRun run_of(int ranks) {
  BootstrapRun run;
  run.ranks = ranks;
  return run;
}

TEST(Bootstrap, EveryRankIsDoneWithLogMessagesAndAConstantNumberAtTheStore) {
  for (const int ranks : {1, 2, 3, 7, 64, 1000, 4096, 16384}) {
    const auto result = simulate(run_of(ranks));
    const int rounds = bootstrap::BruckRounds{0, ranks}.count();
    EXPECT_EQ(result.done, ranks);
    EXPECT_EQ(result.failed, 0);
    EXPECT_EQ(result.rounds, rounds);
    // A connection, its acceptance, a question and an answer a round.
    EXPECT_EQ(result.messages.max, 4 * rounds) << ranks;
    EXPECT_EQ(result.store_requests.max, ranks > 1 ? 2 : 0);
    EXPECT_EQ(result.retries, 0);
  }
}

TEST(Bootstrap, TwoRanksTakeWhatTheirMessagesTake) {
  auto run = run_of(2);
  run.network.between = {.latency_us = 100, .overhead_us = 0, .gap_us = 0, .byte_ns = 0};
  run.store = {.connect_us = 7, .request_us = 3};
  // To the store and back: connect, publish, look up; of the two, the second waits for the first.
  // Then four messages between the ranks: connection, acceptance, question, answer.
  const double store = 6 * 100 + 7 + 3 + 3 + 7;
  const auto result = simulate(run);
  EXPECT_NEAR(result.time_us, store + 4 * 100, 1);
}

TEST(Bootstrap, TheStoreTakesTheSameOfEveryRank) {
  const auto small = simulate(run_of(1024)), large = simulate(run_of(8192));
  EXPECT_NEAR(large.store_us / small.store_us, 8, 0.5);
  EXPECT_EQ(large.store_total, 2 * 8192);
}

TEST(Bootstrap, RanksThatWaitAskTheStoreALogarithmicNumberOfTimes) {
  auto run = run_of(16384);
  run.stagger_us = 10e6;
  const auto result = simulate(run);
  EXPECT_EQ(result.done, 16384);
  // Four requests each time that the wait is e times as long, and four a second from one second on.
  EXPECT_LE(result.store_requests.max, 80);
  EXPECT_LE(result.store_total, 60 * 16384);
  EXPECT_LE(result.time_us, 12e6);
}

TEST(Bootstrap, MemoryOfARankIsBounded) {
  for (const int ranks : {1024, 32768}) {
    const auto result = simulate(run_of(ranks));
    EXPECT_LT(result.bytes_per_rank, 2048) << ranks;
    EXPECT_EQ(result.table_bytes, 128 * ranks);
  }
}

TEST(Bootstrap, LostAndLateMessagesCostTimeAndNothingElse) {
  double last = simulate(run_of(1000)).time_us;
  for (const double drop : {0.001, 0.01, 0.05}) {
    auto run = run_of(1000);
    run.faults = {.seed = 3, .drop = drop, .delay = 0.1};
    const auto result = simulate(run);
    EXPECT_EQ(result.done, 1000) << drop;
    EXPECT_GT(result.time_us, last) << drop;
    last = result.time_us;
  }
}

// Whenever a rank ends, the others know which one, soon; or they were not in need of it.
TEST(Bootstrap, ARankThatEndsIsNamed) {
  int failed_runs = 0;
  const double whole = simulate(run_of(500)).time_us;
  for (int i = 0; i < 40; ++i) {
    auto run = run_of(500);
    run.kill = (i * 131) % 500;
    run.kill_at_us = whole * (0.5 + i / 80.0);
    run.retry_policy.timeout = std::chrono::seconds(60);
    const auto result = simulate(run);
    if (result.killed == 0) continue;
    EXPECT_EQ(result.done + result.failed, 499);
    if (result.failed == 0) continue;
    ++failed_runs;
    // A few see only that a rank which failed by it has gone; what the first left in the store,
    // which is not simulated, tells them, too.
    EXPECT_GE(result.naming, result.failed * 3 / 4) << "killed at " << run.kill_at_us;
    EXPECT_LT(result.noticed_us, 5e6);
  }
  EXPECT_GT(failed_runs, 10);
}

TEST(Bootstrap, ARunDependsOnItsSeedAlone) {
  auto run = run_of(300);
  run.faults = {.seed = 4, .drop = 0.02};
  run.stagger_us = 1000;
  const auto once = simulate(run), again = simulate(run);
  EXPECT_EQ(once.time_us, again.time_us);
  EXPECT_EQ(once.events, again.events);
  run.faults.seed = 5;
  EXPECT_NE(simulate(run).time_us, once.time_us);
}

TEST(Bootstrap, WhatCannotBeIsRefusedInWords) {
  auto run = run_of(4);
  run.kill = 4;
  EXPECT_THROW(simulate(run), std::invalid_argument);
  EXPECT_THROW(simulate(run_of(0)), std::invalid_argument);
  run = run_of(4);
  run.blob_bytes = 5000;
  EXPECT_THROW(simulate(run), std::invalid_argument);
}

TEST(Bootstrap, WhatTakesLongerThanThereIsTimeIsRefused) {
  BootstrapRun late{.ranks = 64}, killed{.ranks = 64}, slow{.ranks = 64};
  late.stagger_us = 1e300;
  killed.kill = 3;
  killed.kill_at_us = 1e300;
  slow.network.between.overhead_us = 1e300;
  for (const auto& run : {late, killed, slow}) EXPECT_THROW(simulate(run), std::invalid_argument);
}

}  // namespace
}  // namespace torch::comms::sim
