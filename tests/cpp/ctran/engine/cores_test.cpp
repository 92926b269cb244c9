// How ranks wait follows the cores that each may run on.

#include <sched.h>

#include <vector>

#include "ctran/engine/world.hpp"

namespace torch::comms::ctran::test {
namespace {

std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

void bind_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ASSERT_EQ(::sched_setaffinity(0, sizeof set, &set), 0);
}

// Rank r's thread is bound to cores[r] before it forms the group.
std::string waits_of(const std::vector<int>& cores, std::vector<std::string> hosts = {}) {
  std::string last;
  run({.size = static_cast<int>(cores.size()),
       .links = LinkPolicy::kAuto,
       .hosts = std::move(hosts),
       .before = [&](int rank) { bind_to(cores[static_cast<size_t>(rank)]); }},
      [&](Rank& self) {
        self.group->run(barrier(self.size()));
        if (self.rank() + 1 == self.size()) last = self.group->link_context()->describe_waiting();
      });
  return last;
}

TEST(Cores, RanksBoundToOneCoreYieldToEachOther) {
  const int core = own_cores().front();
  EXPECT_EQ(waits_of({core, core}), "yield first (2 ranks on 1 core)");
}

TEST(Cores, RanksBoundToCoresOfTheirOwnSpin) {
  const auto cores = own_cores();
  if (cores.size() < 2) GTEST_SKIP() << "needs two cores";
  EXPECT_EQ(waits_of({cores[0], cores[1]}), "spin first (1 rank on 1 core)");
  EXPECT_EQ(waits_of({cores[0], cores[1], cores[1]}), "yield first (2 ranks on 1 core)");
  EXPECT_EQ(waits_of({cores[1], cores[1], cores[0]}), "spin first (1 rank on 1 core)");
}

TEST(Cores, RanksOfAnotherHostShareNone) {
  const int core = own_cores().front();
  EXPECT_EQ(waits_of({core, core}, {"a", "b"}), "spin first (1 rank on 1 core)");
}

std::string waits_of_three(bool move_threads) {
  std::string first;
  run({.size = 3, .move_threads = move_threads}, [&](Rank& self) {
    for (int i = 0; i < 100; ++i) self.group->run(barrier(self.size()));
    if (self.rank() == 0) first = self.group->link_context()->describe_waiting();
  });
  return first;
}

TEST(Cores, RanksThatMayUseSeveralMoveBetweenThem) {
  if (own_cores().size() < 2) GTEST_SKIP() << "needs two cores";
  const auto moving = waits_of_three(true), staying = waits_of_three(false);
  EXPECT_TRUE(moving.ends_with("; moves to cores with fewer)")) << moving;
  EXPECT_TRUE(staying.ends_with("s)")) << staying;
  EXPECT_EQ(moving.find("; "), staying.size() - 1);
}

}  // namespace
}  // namespace torch::comms::ctran::test
