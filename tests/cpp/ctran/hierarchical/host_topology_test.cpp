#include "ctran/hierarchical/host_topology.hpp"

#include <gtest/gtest.h>

#include <array>

namespace torch::comms::ctran::test {
namespace {

using Ranks = std::vector<std::vector<int>>;

TEST(Hosts, AreInTheOrderOfTheirFirstRanks) {
  const auto hosts = make_host_topology(std::array{7, 3, 7, 3});
  EXPECT_EQ(hosts.ranks, (Ranks{{0, 2}, {1, 3}}));
  EXPECT_EQ(hosts.host_ranks[3].host, 1);
  EXPECT_EQ(hosts.host_ranks[3].local_rank, 1);
  EXPECT_EQ(hosts.rails, 2);
  EXPECT_EQ(hosts.rail(1), (std::vector{2, 3}));
  EXPECT_TRUE(hosts.has_equal_hosts());
  EXPECT_FALSE(hosts.is_host_major());
}

TEST(Hosts, TheSmallestSaysHowManyRailsThereAre) {
  const auto hosts = make_host_topology(std::array{0, 0, 0, 3, 3, 5, 5, 5});
  EXPECT_EQ(hosts.count(), 3);
  EXPECT_EQ(hosts.rails, 2);
  EXPECT_EQ(hosts.rail(1), (std::vector{1, 4, 6}));
  EXPECT_FALSE(hosts.has_equal_hosts());
  EXPECT_TRUE(hosts.is_host_major());
}

}  // namespace
}  // namespace torch::comms::ctran::test
