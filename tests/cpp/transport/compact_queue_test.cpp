#include "transport/protocol/compact_queue.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace torch::comms::transport {
namespace {

TEST(Slots, IsAQueue) {
  CompactQueue<int> compact;
  std::deque<int> queue;
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    // Fills up to hundreds at times, and runs empty at others.
    if (const bool grows = i / 1000 % 2 == 0; random() % 8 < (grows ? 5 : 3) || queue.empty()) {
      compact.push_back(i);
      queue.push_back(i);
    } else {
      compact.pop_front();
      queue.pop_front();
    }
    ASSERT_EQ(compact.size(), queue.size());
    ASSERT_EQ(compact.empty(), queue.empty());
    if (queue.empty()) continue;
    ASSERT_EQ(compact[0], queue.front());
    const size_t middle = random() % queue.size();
    ASSERT_EQ(compact[middle], queue[middle]);
    compact[middle] = queue[middle] = -i;
    ASSERT_EQ(compact.all().back(), queue.back());
  }
  compact.clear();
  EXPECT_TRUE(compact.empty());
  EXPECT_TRUE(compact.all().empty());
}

}  // namespace
}  // namespace torch::comms::transport
