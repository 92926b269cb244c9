#include "transport/tcp/poller.hpp"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <unistd.h>

#include <array>

namespace torch::comms::transport::tcp {
namespace {

base::FileDescriptor event(unsigned count) {
  return base::FileDescriptor(::eventfd(count, EFD_CLOEXEC | EFD_NONBLOCK));
}

// Whichever is ready first puts others, which are not ready, in the place of both.
struct Replacing final : Poller::Client {
  Poller& poller;
  std::array<base::FileDescriptor, 2> sockets{event(1), event(1)};
  int ready_count = 0;

  explicit Replacing(Poller& watched) : poller(watched) {
    for (const auto& socket : sockets) poller.add(socket.get(), EPOLLIN, *this);
  }
  void on_ready(int, uint32_t) override {
    if (++ready_count > 1) return;
    const std::array numbers{sockets[0].get(), sockets[1].get()};
    for (auto& socket : sockets) {
      poller.remove(socket.get());
      socket = {};
    }
    for (auto& socket : sockets) socket = event(0);
    for (const auto& socket : sockets) poller.add(socket.get(), EPOLLIN, *this);
    EXPECT_EQ(sockets[0].get(), numbers[0]);
    EXPECT_EQ(sockets[1].get(), numbers[1]);
  }
};

TEST(Poller, ToldOfASocketIsWhoeverHasItNotWhoeverHasItsNumberNow) {
  Poller poller;
  Replacing client(poller);
  EXPECT_TRUE(poller.poll());
  EXPECT_EQ(client.ready_count, 1);
  EXPECT_FALSE(poller.poll());
  const uint64_t one = 1;
  EXPECT_EQ(::write(client.sockets[1].get(), &one, sizeof one), 8);
  EXPECT_TRUE(poller.poll());
  EXPECT_EQ(client.ready_count, 2);
}

}  // namespace
}  // namespace torch::comms::transport::tcp
