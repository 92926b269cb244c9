#include "transport/waiting/core_balancer.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>

namespace torch::comms::transport::test {
namespace {

using Clock = CoreBalancer::Clock;

int less_loaded(int core, const std::vector<int>& peer_cores, size_t from = 0) {
  static constexpr std::array kAllowed{2, 5, 7};
  return less_loaded_core(core, peer_cores, kAllowed, from);
}

TEST(RoomierCore, HasAtLeastTwoFewer) {
  EXPECT_EQ(less_loaded(2, {}), -1);
  EXPECT_EQ(less_loaded(2, {5, 5, 7}), -1);       // one has this rank alone
  EXPECT_EQ(less_loaded(2, {2, 5, 7}), -1);       // two here, one on each other
  EXPECT_EQ(less_loaded(2, {2, 5}), 7);           // two here, nobody there
  EXPECT_EQ(less_loaded(2, {2, 2, 5, 7}), 5);     // three here, one on each other
  EXPECT_EQ(less_loaded(2, {2, 2, 5, 7}, 2), 7);  // the same for who begins elsewhere
  EXPECT_EQ(less_loaded(2, {2, 2, 2, 5, 5, 7}), 7);
  EXPECT_EQ(less_loaded(9, {9, 9}), 2);  // not even allowed where it is
}

// The core slots of a rank and of its peers, as they would lie in shared memory.
struct TestBalancer {
  explicit TestBalancer(int rank, int peer_count = 2) : balancer(rank, CpuSet::of_this_thread()) {
    for (int i = 0; i < peer_count; ++i)
      balancer.add_peer(rank + 1 + i, mine[static_cast<size_t>(i)], theirs[static_cast<size_t>(i)]);
  }
  void set_all_peers(int core) {
    for (auto& slot : theirs) slot = static_cast<uint32_t>(core + 1);
  }
  std::array<CoreBalancer::CoreSlot, 2> mine{}, theirs{};
  CoreBalancer balancer;
};

// How often it looked until it was moved, with all the others on its core whenever it looks.
int calls_until_moved(TestBalancer& fixture) {
  for (int calls = 1; calls <= 10'000; ++calls) {
    fixture.set_all_peers(::sched_getcpu());
    if (fixture.balancer.rebalance(Clock::now())) return calls;
  }
  return 0;
}

TEST(Seating, ShowsEveryNeighbourWhereThisRankIs) {
  TestBalancer fixture(0);
  fixture.balancer.rebalance(Clock::now());
  EXPECT_GT(fixture.mine[0], 0u);
  EXPECT_EQ(fixture.mine[0], fixture.mine[1].load());
}

TEST(Seating, MovesAwayFromACrowdedCoreAndKeepsTheAffinity) {
  const auto allowed = CpuSet::of_this_thread().list();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two cores";
  TestBalancer fixture(0);
  // The others have higher ranks, and would have moved before.
  EXPECT_GE(calls_until_moved(fixture), 3 * CoreBalancer::kConfirmations);
  EXPECT_EQ(CpuSet::of_this_thread().list(), allowed);
  EXPECT_EQ(fixture.mine[0], fixture.mine[1].load());
}

TEST(Seating, StaysWhereItHasMovedForAWhile) {
  if (CpuSet::of_this_thread().count() < 2) GTEST_SKIP() << "needs two cores";
  TestBalancer fixture(0);
  const auto begin = Clock::now();
  ASSERT_GT(calls_until_moved(fixture), 0);
  for (int i = 0; i < 100; ++i) {
    fixture.set_all_peers(::sched_getcpu());
    EXPECT_FALSE(fixture.balancer.rebalance(begin + CoreBalancer::kMinMoveInterval / 2));
  }
}

TEST(Seating, StaysWhereNobodyElseIsKnownToBe) {
  TestBalancer fixture(0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(fixture.balancer.rebalance(Clock::now()));
}

TEST(Seating, StaysWhereItIsBoundTo) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(CpuSet::of_this_thread().list().front(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  {
    TestBalancer fixture(0);
    EXPECT_EQ(calls_until_moved(fixture), 0);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Seating, ForgetsANeighbour) {
  TestBalancer fixture(0);
  for (const int rank : {1, 2}) fixture.balancer.remove_peer(rank);
  EXPECT_EQ(calls_until_moved(fixture), 0);
  EXPECT_EQ(fixture.mine[0], 0u);
}

}  // namespace
}  // namespace torch::comms::transport::test
