#include "ctran/engine/plan/algorithm_chooser.hpp"

#include <gtest/gtest.h>

namespace torch::comms::ctran {
namespace {

std::string_view for_broadcast(int ranks, int64_t bytes) {
  const auto problem =
      schedule::vector_problem(schedule::Operation::kBroadcast, 0, ranks, bytes / 4, 0);
  return choose_by_size({.problem = problem, .element_bytes = 4}).algorithm->name;
}

// Each copies it out of the root's memory; where many would, the root's memory is the bottleneck.
TEST(ChooseBySize, ALargeBroadcastIsDirectForUpToEightRanksOfAHost) {
  EXPECT_EQ(for_broadcast(8, 16 << 20), "direct");
  EXPECT_EQ(for_broadcast(9, 16 << 20), "scatter_all_gather");
  EXPECT_EQ(for_broadcast(9, 64 << 10), "direct");
}

}  // namespace
}  // namespace torch::comms::ctran
