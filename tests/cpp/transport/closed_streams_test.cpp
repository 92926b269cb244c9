#include "transport/protocol/closed_streams.hpp"

#include <gtest/gtest.h>

#include <set>

namespace torch::comms::transport {
namespace {

TEST(ClosedStreams, NeighboursBecomeOneRange) {
  ClosedStreams closed;
  for (uint32_t first = 0; first < 4000; first += 8) closed.add(first, first + 3);
  EXPECT_EQ(closed.ranges(), 500u);
  for (uint32_t first = 4; first < 4000; first += 8) closed.add(first, first + 3);
  EXPECT_EQ(closed.ranges(), 1u);
  EXPECT_TRUE(closed.contains(0));
  EXPECT_TRUE(closed.contains(3999));
  EXPECT_FALSE(closed.contains(4000));
}

TEST(ClosedStreams, HoldsWhatWasAddedAndNothingElse) {
  ClosedStreams closed;
  std::set<uint32_t> all;
  uint32_t state = 1;
  for (int i = 0; i < 300; ++i) {
    state = state * 1664525 + 1013904223;
    const uint32_t first = (state >> 8) % 2000, last = first + (state >> 24) % 9;
    closed.add(first, last);
    for (uint32_t stream = first; stream <= last; ++stream) all.insert(stream);
  }
  closed.add(UINT32_MAX - 1, UINT32_MAX);
  for (uint32_t stream = 0; stream < 2100; ++stream)
    ASSERT_EQ(closed.contains(stream), all.contains(stream)) << stream;
  EXPECT_TRUE(closed.contains(UINT32_MAX));
}

}  // namespace
}  // namespace torch::comms::transport
