#include "transport/protocol/eager_tuner.hpp"

#include <gtest/gtest.h>

#include "transport/protocol/protocol_thresholds.hpp"

namespace torch::comms::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr uint64_t kBytes = 32u << 10;

// What a message takes, each way; `after`: until its sender knows.
struct Times {
  nanoseconds copy, fetch, after;
};

// So many messages to a peer, which sends as many; returns how many of them left at once.
int exchange(EagerThresholdTuner& choice, int messages, const Times& times,
             uint64_t bytes = kBytes) {
  int at_once = 0;
  for (int i = 0; i < messages; ++i) {
    if (choice.choose_eager(bytes)) {
      ++at_once;
      choice.on_sent(bytes, times.copy);
    } else {
      choice.on_local_read(bytes, times.fetch);
      choice.on_peer_read(bytes, times.after);
    }
  }
  return at_once;
}

TEST(AtOnceChoice, TakesTheWayThatCostsLess) {
  EagerThresholdTuner near(false), far(false);
  EXPECT_GT(exchange(near, 1000, {nanoseconds(1300), nanoseconds(3900), nanoseconds(5000)}), 900);
  EXPECT_LT(exchange(far, 1000, {nanoseconds(6000), nanoseconds(5000), nanoseconds(6000)}), 100);
}

TEST(AtOnceChoice, AReceiverThatComesLateSaysNothingAboutAWayUnlessItWaitsForItsTurn) {
  const Times late{nanoseconds(6000), nanoseconds(5000), microseconds(200)};
  EagerThresholdTuner alone(false), in_turns(true);
  EXPECT_LT(exchange(alone, 1000, late), 100);
  EXPECT_GT(exchange(in_turns, 1000, late), 900);
}

TEST(AtOnceChoice, ChangesWhenTheCoresDo) {
  EagerThresholdTuner choice(false);
  exchange(choice, 3000, {nanoseconds(1300), nanoseconds(3900), nanoseconds(5000)});
  exchange(choice, 300, {nanoseconds(9000), nanoseconds(5000), nanoseconds(6000)});
  EXPECT_LT(exchange(choice, 100, {nanoseconds(9000), nanoseconds(5000), nanoseconds(6000)}), 10);
}

TEST(AtOnceChoice, InterruptionsChangeNothing) {
  EagerThresholdTuner choice(false);
  const Times usual{nanoseconds(1300), nanoseconds(3900), nanoseconds(5000)};
  exchange(choice, 3000, usual);
  for (int i = 0; i < 100; ++i)
    EXPECT_GE(exchange(choice, 4, usual) +
                  exchange(choice, 1, {microseconds(500), nanoseconds(3900), nanoseconds(5000)}),
              2);
  EXPECT_GE(exchange(choice, 100, usual), 95);
}

TEST(AtOnceChoice, WhatIsNeverCopiedByItsReceiverIsNotAnnouncedLong) {
  EagerThresholdTuner choice(false);
  int announced = 0;
  for (int i = 0; i < 5000; ++i) {
    if (choice.choose_eager(kBytes)) {
      choice.on_sent(kBytes, microseconds(3));
      continue;
    }
    ++announced;
    choice.on_peer_refused(kBytes);
  }
  EXPECT_LE(announced, 90);
}

}  // namespace
}  // namespace torch::comms::transport
