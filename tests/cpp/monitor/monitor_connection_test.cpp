#include "monitor/monitor_connection.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>

#include "base/net/socket.hpp"
#include "bootstrap/silent_place.hpp"
#include "transport/connect/connect_retry.hpp"

namespace torch::comms::monitor {
namespace {

using transport::kRetryDelays;
using State = MonitorConnection::State;

// Another rank's place, at which the test answers; time is the test's, too.
struct Place {
  std::string before = {};  // other addresses of it
  uint16_t port = 0;
  base::FileDescriptor listener = base::listen_on_all_interfaces(port);
  Moment now{};
  std::string address = base::format_address("127.0.0.1", port);
  MonitorConnection link{before + address, {}, /*dials=*/true, now};

  void turn(short events) {
    pollfd polled{link.socket(), events, 0};
    ASSERT_GT(::poll(&polled, 1, 20'000), 0);
    link.on_ready(polled.revents, now);
  }
  // Somebody has called; not welcome yet.
  base::FileDescriptor accept() {
    turn(POLLOUT);
    EXPECT_EQ(link.state(), State::kHandshaking);
    pollfd polled{listener.get(), POLLIN, 0};
    EXPECT_GT(::poll(&polled, 1, 20'000), 0);
    return base::FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  void turn_away() {
    accept();
    turn(POLLIN);
  }
};

TEST(SideLink, IsNotLostToOneThatTurnsCallersAwayForAMoment) {
  Place place;
  for (const auto pause : kRetryDelays) {
    place.turn_away();
    ASSERT_EQ(place.link.state(), State::kBackoff);
    place.now += pause;
    place.link.on_time(place.now);
    ASSERT_EQ(place.link.state(), State::kConnecting);
  }
  const auto there = place.accept();
  const transport::tcp::TcpWelcome welcome;
  ASSERT_EQ(::send(there.get(), &welcome, sizeof welcome, 0), ssize_t{sizeof welcome});
  place.turn(POLLIN);
  EXPECT_EQ(place.link.state(), State::kConnected);
}

TEST(SideLink, GoesOnWithTheNextAddressWhereOneIsSilent) {
  const SilentPlace silent;
  Place place{.before = silent.address() + " "};
  for (int i = 0; i < 2; ++i) {  // the rest between two tries has its time, too
    ASSERT_LT(place.link.next_time(), kNever) << "it is dialed for ever";
    place.now = place.link.next_time();
    place.link.on_time(place.now);
  }
  place.accept();
}

// As where another job's rank, or anything, listens at the first address of a host.
void expect_next_address_after(const std::function<void(int socket)>& answer) {
  uint16_t port = 0;
  const auto stranger = base::listen_on_all_interfaces(port);
  Place place{.before = base::format_address("127.0.0.1", port) + " "};
  place.turn(POLLOUT);
  const base::FileDescriptor there(::accept4(stranger.get(), nullptr, nullptr, SOCK_CLOEXEC));
  answer(there.get());
  place.turn(POLLIN);
  place.link.on_time(place.now);
  ASSERT_EQ(place.link.state(), State::kConnecting);
  const auto rank = place.accept();
  const transport::tcp::TcpWelcome welcome;
  ASSERT_EQ(::send(rank.get(), &welcome, sizeof welcome, 0), ssize_t{sizeof welcome});
  place.turn(POLLIN);
  EXPECT_EQ(place.link.state(), State::kConnected);
}

TEST(SideLink, GoesOnWithTheNextAddressWhereAStrangerCloses) {
  expect_next_address_after([](int socket) { ::shutdown(socket, SHUT_RDWR); });
}

TEST(SideLink, GoesOnWithTheNextAddressWhereAStrangerAnswers) {
  expect_next_address_after([](int socket) { ::send(socket, "SSH-2.0-x\r\n", 11, 0); });
}

TEST(SideLink, GoesOnWithTheNextAddressWhereAnotherVersionAnswers) {
  expect_next_address_after([](int socket) {
    transport::tcp::TcpWelcome welcome;
    ++welcome.version;
    ::send(socket, &welcome, sizeof welcome, 0);
  });
}

TEST(SideLink, IsLostToOneThatTurnsCallersAwayForGood) {
  Place place;
  for (const auto pause : kRetryDelays) {
    place.turn_away();
    place.now += pause;
    place.link.on_time(place.now);
  }
  place.turn_away();
  EXPECT_EQ(place.link.state(), State::kFailed);
}

}  // namespace
}  // namespace torch::comms::monitor
