#include "backends/gloo/message_counters.hpp"

#include <gtest/gtest.h>

#include <torchcomms/types.hpp>

// What the counts of two ranks say of the messages between them, once one has closed.
namespace torch::comms::gloo {
namespace {

constexpr bool kSend = true, kReceive = false;

TEST(Tally, TellsEachPeerWhatItMayExpect) {
  GlooMessageCounters tally;
  for (int i = 0; i < 3; ++i) tally.post(kSend, 1);
  tally.post(kReceive, 2);
  EXPECT_EQ(tally.posted(1), (monitor::PostedCounts{.sends = 3}));
  EXPECT_EQ(tally.posted(2), (monitor::PostedCounts{.receives = 1}));
  EXPECT_EQ(tally.posted(7), monitor::PostedCounts());
}

TEST(Tally, AReceiveIsInVainWhenAllThatWasSentHasCome) {
  GlooMessageCounters tally;
  const monitor::PostedCounts theirs{.sends = 2};
  tally.post(kReceive, 1);
  tally.end(kReceive, 1, /*from_any=*/false);
  EXPECT_FALSE(tally.has_received_all_from(1, theirs));
  tally.end(kReceive, 1, /*from_any=*/true);
  EXPECT_TRUE(tally.has_received_all_from(1, theirs));
  EXPECT_TRUE(tally.has_received_all_from(2, {}));
}

TEST(Tally, ASendIsInVainWhenAllReceivesHaveTheirMessage) {
  GlooMessageCounters tally;
  EXPECT_FALSE(tally.has_sent_all_to(1, {.receives = 1}));
  EXPECT_FALSE(tally.has_sent_all_to(1, {.has_open_any_source = 1}));
  tally.end(kSend, 1, /*from_any=*/false);
  EXPECT_TRUE(tally.has_sent_all_to(1, {.receives = 1}));
}

TEST(Tally, AReceiveFromAnyRankCountsForTheOneThatItTook) {
  GlooMessageCounters tally;
  tally.post(kReceive, kAnySource);
  EXPECT_EQ(tally.posted(1), (monitor::PostedCounts{.has_open_any_source = 1}));
  tally.end(kReceive, 1, /*from_any=*/true);
  EXPECT_EQ(tally.posted(1), (monitor::PostedCounts{.receives = 1}));
  EXPECT_EQ(tally.posted(0), monitor::PostedCounts());
}

}  // namespace
}  // namespace torch::comms::gloo
