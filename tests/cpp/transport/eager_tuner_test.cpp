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
int exchange(EagerThresholdTuner& tuner, int messages, const Times& times,
             uint64_t bytes = kBytes) {
  int eager = 0;
  for (int i = 0; i < messages; ++i) {
    if (tuner.choose_eager(bytes)) {
      ++eager;
      tuner.on_sent(bytes, times.copy);
    } else {
      tuner.on_local_read(bytes, times.fetch);
      tuner.on_peer_read(bytes, times.after);
    }
  }
  return eager;
}

TEST(AtOnceChoice, TakesTheWayThatCostsLess) {
  EagerThresholdTuner near(false), far(false);
  EXPECT_GT(exchange(near, 1000, {nanoseconds(1300), nanoseconds(3900), nanoseconds(5000)}), 900);
  EXPECT_LT(exchange(far, 1000, {nanoseconds(6000), nanoseconds(5000), nanoseconds(6000)}), 100);
}

TEST(AtOnceChoice, AReceiverThatComesLateSaysNothingAboutAWayUnlessItWaitsForItsTurn) {
  const Times late{nanoseconds(6000), nanoseconds(5000), microseconds(200)};
  EagerThresholdTuner alone(false), oversubscribed(true);
  EXPECT_LT(exchange(alone, 1000, late), 100);
  EXPECT_GT(exchange(oversubscribed, 1000, late), 900);
}

TEST(AtOnceChoice, ChangesWhenTheCoresDo) {
  EagerThresholdTuner tuner(false);
  exchange(tuner, 3000, {nanoseconds(1300), nanoseconds(3900), nanoseconds(5000)});
  exchange(tuner, 300, {nanoseconds(9000), nanoseconds(5000), nanoseconds(6000)});
  EXPECT_LT(exchange(tuner, 100, {nanoseconds(9000), nanoseconds(5000), nanoseconds(6000)}), 10);
}

TEST(AtOnceChoice, InterruptionsChangeNothing) {
  EagerThresholdTuner tuner(false);
  const Times usual{nanoseconds(1300), nanoseconds(3900), nanoseconds(5000)};
  exchange(tuner, 3000, usual);
  for (int i = 0; i < 100; ++i)
    EXPECT_GE(exchange(tuner, 4, usual) +
                  exchange(tuner, 1, {microseconds(500), nanoseconds(3900), nanoseconds(5000)}),
              2);
  EXPECT_GE(exchange(tuner, 100, usual), 95);
}

TEST(AtOnceChoice, WhatIsNeverCopiedByItsReceiverIsNotAnnouncedLong) {
  EagerThresholdTuner tuner(false);
  int announced = 0;
  for (int i = 0; i < 5000; ++i) {
    if (tuner.choose_eager(kBytes)) {
      tuner.on_sent(kBytes, microseconds(3));
      continue;
    }
    ++announced;
    tuner.on_peer_refused(kBytes);
  }
  EXPECT_LE(announced, 90);
}

}  // namespace
}  // namespace torch::comms::transport
