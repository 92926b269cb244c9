#include "transport/tcp/tcp_connection.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>

namespace torch::comms::transport::tcp {
namespace {

struct Counting final : FrameSink {
  int frames = 0;
  Bytes payload_target(const Frame&) noexcept override { return {}; }
  bool deliver(const Frame&, ConstBytes) noexcept override {
    ++frames;
    return true;
  }
};

struct Nobody final : Poller::Client {
  void on_ready(int, uint32_t) override {}
};

// A connection of three sockets, and the other ends as they are.
struct ChannelTest : ::testing::Test {
  Poller poller;
  KeepaliveWatch watch{poller, std::chrono::milliseconds(0)};
  Nobody nobody;
  Counting sink;
  std::array<base::FileDescriptor, 3> peers;
  std::unique_ptr<TcpConnection> channel;

  ChannelTest() {
    std::vector<base::FileDescriptor> sockets;
    for (auto& peer : peers) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      sockets.emplace_back(ends[0]);
      peer = base::FileDescriptor(ends[1]);
      poller.add(ends[0], EPOLLIN, nobody);
    }
    channel = std::make_unique<TcpConnection>(std::move(sockets), 4096, poller, watch);
  }

  // What has come by now.
  PeerConnection::ReceiveStatus poll_once() {
    poller.poll();
    return channel->receive(sink);
  }
  void send_frame(size_t index) {
    Frame frame;
    frame.kind = FrameKind::kCredit;
    frame.channel = static_cast<uint8_t>(index);
    EXPECT_EQ(::send(peers[index].get(), &frame, sizeof frame, 0), ssize_t{sizeof frame});
  }
};

TEST_F(ChannelTest, WhatIsUnderWayOnOtherLanesComesAfterTheEndOfOne) {
  peers[0] = {};
  EXPECT_EQ(poll_once(), PeerConnection::ReceiveStatus::kNothing);
  EXPECT_TRUE(channel->error_text().empty());
  EXPECT_TRUE(channel->prepare_sleep(false)) << "nothing is to be done";
  pollfd polled{poller.event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&polled, 1, 0), 0) << "the end is told once";
  send_frame(1);
  EXPECT_EQ(poll_once(), PeerConnection::ReceiveStatus::kSome);
  send_frame(2);
  peers[2] = {};
  EXPECT_EQ(poll_once(), PeerConnection::ReceiveStatus::kSome);
  EXPECT_EQ(sink.frames, 2);
  peers[1] = {};
  EXPECT_EQ(poll_once(), PeerConnection::ReceiveStatus::kBroken);
  EXPECT_NE(channel->error_text().find("connection closed"), std::string::npos)
      << channel->error_text();
}

TEST_F(ChannelTest, WhatIsNoFrameEndsIt) {
  peers[0] = {};
  EXPECT_EQ(poll_once(), PeerConnection::ReceiveStatus::kNothing);
  const Frame wrong{.kind = static_cast<FrameKind>(99)};
  EXPECT_EQ(::send(peers[1].get(), &wrong, sizeof wrong, 0), ssize_t{sizeof wrong});
  poll_once();
  EXPECT_EQ(poll_once(), PeerConnection::ReceiveStatus::kBroken);
  EXPECT_NE(channel->error_text().find("protocol error"), std::string::npos)
      << channel->error_text();
}

}  // namespace
}  // namespace torch::comms::transport::tcp
