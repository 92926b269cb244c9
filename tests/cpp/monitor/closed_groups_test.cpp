#include "monitor/closed_groups.hpp"

#include <gtest/gtest.h>

namespace torch::comms::monitor {
namespace {

TEST(EndedGroups, AreKnownForAWhileAndNotForEver) {
  ClosedGroups closed;
  EXPECT_FALSE(closed.contains(0));
  for (uint64_t group = 0; group <= ClosedGroups::kMaxGroups; ++group) {
    closed.add(group);
    EXPECT_TRUE(closed.contains(group));
  }
  EXPECT_FALSE(closed.contains(0)) << "a process that splits again and again keeps them all";
  EXPECT_TRUE(closed.contains(1));
}

}  // namespace
}  // namespace torch::comms::monitor
