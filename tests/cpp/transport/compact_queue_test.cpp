#include "transport/protocol/compact_queue.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace torch::comms::transport {
namespace {

TEST(Slots, IsAQueue) {
  CompactQueue<int> slots;
  std::deque<int> queue;
  std::mt19937 random(7);
  for (int i = 0; i < 20'000; ++i) {
    // Fills up to hundreds at times, and runs empty at others.
    if (const bool grows = i / 1000 % 2 == 0; random() % 8 < (grows ? 5 : 3) || queue.empty()) {
      slots.push_back(i);
      queue.push_back(i);
    } else {
      slots.pop_front();
      queue.pop_front();
    }
    ASSERT_EQ(slots.size(), queue.size());
    ASSERT_EQ(slots.empty(), queue.empty());
    if (queue.empty()) continue;
    ASSERT_EQ(slots[0], queue.front());
    const size_t middle = random() % queue.size();
    ASSERT_EQ(slots[middle], queue[middle]);
    slots[middle] = queue[middle] = -i;
    ASSERT_EQ(slots.all().back(), queue.back());
  }
  slots.clear();
  EXPECT_TRUE(slots.empty());
  EXPECT_TRUE(slots.all().empty());
}

}  // namespace
}  // namespace torch::comms::transport
