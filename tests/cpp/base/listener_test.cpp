#include "base/net/listener.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "base/calls.hpp"
#include "base/net/socket.hpp"
#include "base/no_descriptors.hpp"

namespace torch::comms::base {
namespace {

bool is_ready(const Listener& listener) {
  pollfd polled{listener.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

void turn_callers_away() {
  uint16_t port = 0;
  Listener listener(listen_on_all_interfaces(port));
  EXPECT_FALSE(listener.accept());
  const auto first = call_at(port), second = call_at(port);
  {
    const NoDescriptors none;
    ASSERT_LT(::dup(0), 0);
    EXPECT_FALSE(listener.accept());
  }
  EXPECT_FALSE(is_ready(listener));
  char byte = 0;
  EXPECT_LE(::recv(first.get(), &byte, 1, 0), 0);
  EXPECT_LE(::recv(second.get(), &byte, 1, 0), 0);

  const auto third = call_at(port);
  const auto caller = listener.accept();
  ASSERT_TRUE(caller);
  EXPECT_EQ(::recv(caller.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// The descriptor with which callers are turned away could not be had at first.
void turn_callers_away_later() {
  uint16_t port = 0;
  auto socket = listen_on_all_interfaces(port);
  const auto listener = [&] {
    const NoDescriptors none;
    return std::make_unique<Listener>(std::move(socket));
  }();
  EXPECT_FALSE(listener->accept());
  const auto caller = call_at(port);
  {
    const NoDescriptors none;
    EXPECT_FALSE(listener->accept());
  }
  EXPECT_FALSE(is_ready(*listener));
}

TEST(Listener, TurnsCallersAwayWhenThereAreNoDescriptors) { in_child(turn_callers_away); }

TEST(Listener, TurnsThemAwayAlsoWithADescriptorThatItHadToTakeLater) {
  in_child(turn_callers_away_later);
}

}  // namespace
}  // namespace torch::comms::base
