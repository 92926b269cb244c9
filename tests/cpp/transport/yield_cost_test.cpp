#include "transport/waiting/yield_cost.hpp"

#include <gtest/gtest.h>

#include "transport/waiting/wait_policy.hpp"

namespace torch::comms::transport::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using Clock = YieldCost::Clock;

// A system in which a yield takes as long as a test says, and nothing else takes any time.
class TestSystem final : public YieldCost {
 public:
  void pass(Clock::duration time) { now_ += time; }
  Clock::time_point now() const noexcept override { return now_; }

  Clock::duration each = microseconds(1);  // yield
  int yields = 0, sleeps = 0;

 private:
  void yield_core() noexcept override {
    ++yields;
    now_ += each;
  }
  void sleep_a_moment() noexcept override { ++sleeps; }

  Clock::time_point now_{milliseconds(1000)};
};

void yield(TestSystem& system, int slices = 1) { system.yield(system.now(), slices); }

// How long the cost is high from now on, in steps of a millisecond.
Clock::duration time_without_yields(TestSystem& system) {
  const auto begin = system.now();
  while (system.is_high(system.now())) system.pass(milliseconds(1));
  return system.now() - begin;
}

TEST(YieldCost, IsNotHighWhereYieldsAreCheap) {
  TestSystem system;
  for (int i = 0; i < 1000; ++i) yield(system);
  EXPECT_FALSE(system.is_high(system.now()));
}

TEST(YieldCost, IsHighForAsLongAsAYieldCostASliceAndThenLowAgain) {
  TestSystem system;
  system.each = milliseconds(4);
  yield(system);
  EXPECT_TRUE(system.is_high(system.now()));
  EXPECT_EQ(time_without_yields(system), milliseconds(4));
}

TEST(YieldCost, IsHighForTwiceAsLongEachTimeThatAYieldCostsASliceAgain) {
  TestSystem system;
  for (int times = 1; times <= YieldCost::kMaxMultiple; times *= 2) {
    system.each = milliseconds(4);
    yield(system);
    EXPECT_EQ(time_without_yields(system), times * milliseconds(4));
    system.pass(std::chrono::hours(1));  // without a yield, nothing is known to be better
    system.each = microseconds(1);
    for (int i = 0; i < 100; ++i) yield(system);  // nor by a few that are cheap
  }
  system.each = milliseconds(4);
  yield(system);
  EXPECT_EQ(time_without_yields(system), YieldCost::kMaxMultiple * milliseconds(4));
  system.each = milliseconds(100);
  yield(system);
  EXPECT_EQ(time_without_yields(system), YieldCost::kMaxHighTime);
}

TEST(YieldCost, IsHighForAShortTimeAgainOnceYieldsHaveBeenCheapForLong) {
  TestSystem system;
  for (int i = 0; i < 5; ++i) {
    system.each = milliseconds(4);
    yield(system);
  }
  EXPECT_EQ(time_without_yields(system), milliseconds(64));
  system.each = microseconds(1);
  for (int i = 0; i < 8000; ++i) yield(system);  // twice what the slice cost
  system.each = milliseconds(4);
  yield(system);
  EXPECT_EQ(time_without_yields(system), milliseconds(4));
}

TEST(YieldCost, OfRanksThatShareCoresIsHighAfterSlicesInARowAlone) {
  TestSystem system;
  constexpr int kSlices = 4;
  for (int round = 0; round < 10; ++round) {
    system.each = milliseconds(4);
    for (int i = 1; i < kSlices; ++i) yield(system, kSlices);
    EXPECT_FALSE(system.is_high(system.now()));
    system.each = microseconds(300);  // another rank had something to do
    yield(system, kSlices);
  }
  system.each = milliseconds(4);
  for (int i = 0; i < kSlices; ++i) yield(system, kSlices);
  EXPECT_TRUE(system.is_high(system.now()));
}

TEST(YieldCost, DecidesWhetherAPauseYieldsOrSleeps) {
  TestSystem system;
  system.pause(1);
  EXPECT_EQ(system.yields, 1);
  system.each = milliseconds(4);
  system.pause(1);
  EXPECT_EQ(system.sleeps, 0);
  system.pause(1);
  EXPECT_EQ(system.yields, 2);
  EXPECT_EQ(system.sleeps, 1);
}

TEST(Pace, SleepsInsteadOfYieldingWhileYieldsAreExpensiveAndYieldsAgainOnceTheyAreCheap) {
  TestSystem system;
  const WaitPolicy policy{.spins = 10, .yield_cost = &system};
  system.each = milliseconds(4);
  Backoff first(policy);
  for (int i = 0; i < policy.spins; ++i) EXPECT_FALSE(first.step());
  EXPECT_EQ(system.yields, 0);
  EXPECT_FALSE(first.step());
  EXPECT_EQ(system.yields, 1);
  EXPECT_TRUE(first.step());  // time to sleep

  Backoff second(policy);  // in the next wait
  for (int i = 0; i < policy.spins; ++i) EXPECT_FALSE(second.step());
  EXPECT_TRUE(second.step());
  EXPECT_EQ(system.yields, 1);

  system.each = microseconds(1);  // the other program has ended
  system.pass(milliseconds(4));
  Backoff third(policy);
  for (int i = 0; i < policy.spins + 20; ++i) EXPECT_FALSE(third.step());
  EXPECT_EQ(system.yields, 21);
}

TEST(Pace, IsAwakeForAsLongAsItsPolicySaysWhereYieldsAreCheap) {
  TestSystem system;
  const WaitPolicy policy{.spins = 0,
                          .awake_time = microseconds(50),
                          .max_awake_time = microseconds(50),
                          .yield_cost = &system};
  Backoff pace(policy);
  while (!pace.step()) ASSERT_LT(system.yields, 1000);
  EXPECT_EQ(system.yields, 50);
}

}  // namespace
}  // namespace torch::comms::transport::test
