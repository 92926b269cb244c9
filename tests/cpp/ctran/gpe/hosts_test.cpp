#include "ctran/gpe/hosts.hpp"

#include <gtest/gtest.h>

#include <array>

namespace torch::comms::ctran::test {
namespace {

using Ranks = std::vector<std::vector<int>>;

TEST(Hosts, AreInTheOrderOfTheirFirstRanks) {
  const auto hosts = hosts_of(std::array{7, 3, 7, 3});
  EXPECT_EQ(hosts.ranks, (Ranks{{0, 2}, {1, 3}}));
  EXPECT_EQ(hosts.places[3].host, 1);
  EXPECT_EQ(hosts.places[3].local, 1);
  EXPECT_EQ(hosts.rails, 2);
  EXPECT_EQ(hosts.rail(1), (std::vector{2, 3}));
  EXPECT_TRUE(hosts.are_equal());
  EXPECT_FALSE(hosts.are_in_order());
}

TEST(Hosts, TheSmallestSaysHowManyRailsThereAre) {
  const auto hosts = hosts_of(std::array{0, 0, 0, 3, 3, 5, 5, 5});
  EXPECT_EQ(hosts.count(), 3);
  EXPECT_EQ(hosts.rails, 2);
  EXPECT_EQ(hosts.rail(1), (std::vector{1, 4, 6}));
  EXPECT_FALSE(hosts.are_equal());
  EXPECT_TRUE(hosts.are_in_order());
}

}  // namespace
}  // namespace torch::comms::ctran::test
