#include "backends/gloo/message_counters.hpp"

#include <gtest/gtest.h>

#include <torchcomms/types.hpp>

// What the counts of two ranks say of the messages between them, once one has closed.
namespace torch::comms::gloo {
namespace {

constexpr bool kSend = true, kReceive = false;

TEST(Tally, TellsEachPeerWhatItMayExpect) {
  GlooMessageCounters counters;
  for (int i = 0; i < 3; ++i) counters.post(kSend, 1);
  counters.post(kReceive, 2);
  EXPECT_EQ(counters.posted(1), (monitor::PostedCounts{.sends = 3}));
  EXPECT_EQ(counters.posted(2), (monitor::PostedCounts{.receives = 1}));
  EXPECT_EQ(counters.posted(7), monitor::PostedCounts());
}

TEST(Tally, AReceiveIsInVainWhenAllThatWasSentHasCome) {
  GlooMessageCounters counters;
  const monitor::PostedCounts peer_counts{.sends = 2};
  counters.post(kReceive, 1);
  counters.end(kReceive, 1, /*from_any=*/false);
  EXPECT_FALSE(counters.has_received_all_from(1, peer_counts));
  counters.end(kReceive, 1, /*from_any=*/true);
  EXPECT_TRUE(counters.has_received_all_from(1, peer_counts));
  EXPECT_TRUE(counters.has_received_all_from(2, {}));
}

TEST(Tally, ASendIsInVainWhenAllReceivesHaveTheirMessage) {
  GlooMessageCounters counters;
  EXPECT_FALSE(counters.has_sent_all_to(1, {.receives = 1}));
  EXPECT_FALSE(counters.has_sent_all_to(1, {.has_open_any_source = 1}));
  counters.end(kSend, 1, /*from_any=*/false);
  EXPECT_TRUE(counters.has_sent_all_to(1, {.receives = 1}));
}

TEST(Tally, AReceiveFromAnyRankCountsForTheOneThatItTook) {
  GlooMessageCounters counters;
  counters.post(kReceive, kAnySource);
  EXPECT_EQ(counters.posted(1), (monitor::PostedCounts{.has_open_any_source = 1}));
  counters.end(kReceive, 1, /*from_any=*/true);
  EXPECT_EQ(counters.posted(1), (monitor::PostedCounts{.receives = 1}));
  EXPECT_EQ(counters.posted(0), monitor::PostedCounts());
}

}  // namespace
}  // namespace torch::comms::gloo
