#include "transport/waiting/core_balancer.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>

namespace torch::comms::transport::test {
namespace {

using Clock = CoreBalancer::Clock;

int roomier(int core, const std::vector<int>& others, size_t from = 0) {
  static constexpr std::array kAllowed{2, 5, 7};
  return less_loaded_core(core, others, kAllowed, from);
}

TEST(RoomierCore, HasAtLeastTwoFewer) {
  EXPECT_EQ(roomier(2, {}), -1);
  EXPECT_EQ(roomier(2, {5, 5, 7}), -1);       // one has this rank alone
  EXPECT_EQ(roomier(2, {2, 5, 7}), -1);       // two here, one on each other
  EXPECT_EQ(roomier(2, {2, 5}), 7);           // two here, nobody there
  EXPECT_EQ(roomier(2, {2, 2, 5, 7}), 5);     // three here, one on each other
  EXPECT_EQ(roomier(2, {2, 2, 5, 7}, 2), 7);  // the same for who begins elsewhere
  EXPECT_EQ(roomier(2, {2, 2, 2, 5, 5, 7}), 7);
  EXPECT_EQ(roomier(9, {9, 9}), 2);  // not even allowed where it is
}

// The seats of a rank and of its neighbours, as they would lie in shared memory.
struct Table {
  explicit Table(int rank, int neighbours = 2) : seating(rank, CpuSet::of_this_thread()) {
    for (int i = 0; i < neighbours; ++i)
      seating.add_peer(rank + 1 + i, mine[static_cast<size_t>(i)], theirs[static_cast<size_t>(i)]);
  }
  void put_all_on(int core) {
    for (auto& seat : theirs) seat = static_cast<uint32_t>(core + 1);
  }
  std::array<CoreBalancer::CoreSlot, 2> mine{}, theirs{};
  CoreBalancer seating;
};

// How often it looked until it was moved, with all the others on its core whenever it looks.
int looks_until_moved(Table& table) {
  for (int looks = 1; looks <= 10'000; ++looks) {
    table.put_all_on(::sched_getcpu());
    if (table.seating.rebalance(Clock::now())) return looks;
  }
  return 0;
}

TEST(Seating, ShowsEveryNeighbourWhereThisRankIs) {
  Table table(0);
  table.seating.rebalance(Clock::now());
  EXPECT_GT(table.mine[0], 0u);
  EXPECT_EQ(table.mine[0], table.mine[1].load());
}

TEST(Seating, MovesAwayFromACrowdedCoreAndKeepsTheAffinity) {
  const auto allowed = CpuSet::of_this_thread().list();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two cores";
  Table table(0);
  // The others have higher ranks, and would have moved before.
  EXPECT_GE(looks_until_moved(table), 3 * CoreBalancer::kConfirmations);
  EXPECT_EQ(CpuSet::of_this_thread().list(), allowed);
  EXPECT_EQ(table.mine[0], table.mine[1].load());
}

TEST(Seating, StaysWhereItHasMovedForAWhile) {
  if (CpuSet::of_this_thread().count() < 2) GTEST_SKIP() << "needs two cores";
  Table table(0);
  const auto begin = Clock::now();
  ASSERT_GT(looks_until_moved(table), 0);
  for (int i = 0; i < 100; ++i) {
    table.put_all_on(::sched_getcpu());
    EXPECT_FALSE(table.seating.rebalance(begin + CoreBalancer::kMinMoveInterval / 2));
  }
}

TEST(Seating, StaysWhereNobodyElseIsKnownToBe) {
  Table table(0);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(table.seating.rebalance(Clock::now()));
}

TEST(Seating, StaysWhereItIsBoundTo) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(CpuSet::of_this_thread().list().front(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  {
    Table table(0);
    EXPECT_EQ(looks_until_moved(table), 0);
  }
  ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Seating, ForgetsANeighbour) {
  Table table(0);
  for (const int rank : {1, 2}) table.seating.remove_peer(rank);
  EXPECT_EQ(looks_until_moved(table), 0);
  EXPECT_EQ(table.mine[0], 0u);
}

}  // namespace
}  // namespace torch::comms::transport::test
