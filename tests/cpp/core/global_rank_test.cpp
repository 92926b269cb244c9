#include "core/rendezvous/global_rank.hpp"

#include <gtest/gtest.h>

#include "core/variable.hpp"

namespace torch::comms {
namespace {

TEST(LargerJobs, TheRankInThemIsTheLaunchers) {
  const Variable rank("RANK", "2"), size("WORLD_SIZE", "3");
  const Variable own("TORCHCOMM_RANK", "1"), part("TORCHCOMM_SIZE", "2");
  EXPECT_EQ(global_rank_if_subset(2), 2);
  EXPECT_EQ(global_rank_if_subset(3), std::nullopt);
}

TEST(LargerJobs, WithoutALauncherAnEarlierCommunicatorTells) {
  const Variable rank("RANK", nullptr), size("WORLD_SIZE", nullptr);
  EXPECT_EQ(global_rank_if_subset(70), std::nullopt);
  EXPECT_EQ(global_rank_if_subset(69), -1);
  EXPECT_EQ(global_rank_if_subset(70), std::nullopt);
}

// As one process of a launcher starts all ranks of a job of its own.
TEST(LargerJobs, ALaunchersSmallerOneIsNone) {
  const Variable rank("RANK", "0"), size("WORLD_SIZE", "1");
  EXPECT_EQ(global_rank_if_subset(80), std::nullopt);
}

}  // namespace
}  // namespace torch::comms
