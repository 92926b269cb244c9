#include "ctran/engine/control/control_channel.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "monitor/monitor_message.hpp"
#include "transport/self_transport.hpp"

// The messages that ranks exchange beside the operations of their groups, over a link of one rank
// to itself.
namespace torch::comms::ctran::test {
namespace {

using PollResult = ControlChannel::ControlPollResult;

class Channel : public testing::Test {
 protected:
  Channel() {
    link_->connect(0, link_->endpoint());
    channel_.post_receive(0, *link_);
  }
  PollResult poll(ControlMessage& message) {
    for (int turns = 0; turns < 1000; ++turns) {
      link_->progress();
      const auto polled = channel_.poll(0, *link_, message);
      if (polled != PollResult::kNothing) return polled;
    }
    return PollResult::kNothing;
  }

  void send(const std::string& part) {
    link_->send(requests_.emplace_back(), 0, ControlChannel::kStream,
                std::as_bytes(std::span(part)));
  }

  // The link uses both until it ends.
  ControlChannel channel_{1};
  std::deque<transport::Request> requests_;
  std::unique_ptr<transport::Transport> link_ =
      transport::make_self_transport({.rank = 0, .size = 1});
};

TEST_F(Channel, ALongMessageTravelsInPartsAndAShortOneFollowsIt) {
  std::vector<size_t> sizes{0, 1, 8160, 20'000};
  for (size_t bytes = 4040; bytes < 4100; ++bytes) sizes.push_back(bytes);  // one part, or two
  for (const size_t bytes : sizes) {
    ControlMessage sent{.kind = ControlMessage::Kind::kMonitor, .base = 16};
    for (size_t i = 0; i < bytes; ++i) sent.monitor_message += static_cast<char>(i * 31 % 251);
    channel_.send(0, *link_, sent);
    channel_.send(0, *link_, {.kind = ControlMessage::Kind::kLeaving, .base = 16, .sequence = 9});
    ControlMessage received;
    ASSERT_EQ(poll(received), PollResult::kMessage) << bytes;
    EXPECT_EQ(received.kind, ControlMessage::Kind::kMonitor);
    EXPECT_EQ(received.monitor_message, sent.monitor_message) << bytes;
    ASSERT_EQ(poll(received), PollResult::kMessage) << bytes;
    EXPECT_EQ(received.kind, ControlMessage::Kind::kLeaving);
    EXPECT_EQ(received.sequence, 9u);
    EXPECT_EQ(poll(received), PollResult::kNothing);
  }
}

TEST_F(Channel, AMessageThatNeverEndsIsRefused) {
  const std::string part = '\1' + std::string(4095, 'x');
  constexpr size_t kMostParts = monitor::MonitorMessage::kMaxBytes / 4095;
  ControlMessage received;
  auto polled = PollResult::kNothing;
  while (polled == PollResult::kNothing && requests_.size() < kMostParts + 10) {
    send(part);
    link_->progress();
    polled = channel_.poll(0, *link_, received);
  }
  EXPECT_EQ(polled, PollResult::kFailed);
  EXPECT_GT(requests_.size(), kMostParts);
}

TEST_F(Channel, WhatIsNoMessageIsRefusedOnce) {
  const std::string text = '\0' + std::string("nonsense");
  send(text);
  ControlMessage received;
  EXPECT_EQ(poll(received), PollResult::kFailed);
  EXPECT_EQ(poll(received), PollResult::kNothing);
}

}  // namespace
}  // namespace torch::comms::ctran::test
