#include "monitor/closed_groups.hpp"

#include <gtest/gtest.h>

namespace torch::comms::monitor {
namespace {

TEST(EndedGroups, AreKnownForAWhileAndNotForEver) {
  ClosedGroups ended;
  EXPECT_FALSE(ended.contains(0));
  for (uint64_t group = 0; group <= ClosedGroups::kMaxGroups; ++group) {
    ended.add(group);
    EXPECT_TRUE(ended.contains(group));
  }
  EXPECT_FALSE(ended.contains(0)) << "a process that splits again and again keeps them all";
  EXPECT_TRUE(ended.contains(1));
}

}  // namespace
}  // namespace torch::comms::monitor
