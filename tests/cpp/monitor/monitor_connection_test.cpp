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
struct TestPeer {
  std::string before = {};  // other addresses of it
  uint16_t port = 0;
  base::FileDescriptor listener = base::listen_on_all_interfaces(port);
  Moment now{};
  std::string address = base::format_address("127.0.0.1", port);
  MonitorConnection connection{before + address, {}, /*is_initiator=*/true, now};

  void step(short events) {
    pollfd polled{connection.socket(), events, 0};
    ASSERT_GT(::poll(&polled, 1, 20'000), 0);
    connection.on_ready(polled.revents, now);
  }
  // Somebody has called; not welcome yet.
  base::FileDescriptor accept() {
    step(POLLOUT);
    EXPECT_EQ(connection.state(), State::kHandshaking);
    pollfd polled{listener.get(), POLLIN, 0};
    EXPECT_GT(::poll(&polled, 1, 20'000), 0);
    return base::FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  void reject() {
    accept();
    step(POLLIN);
  }
};

TEST(SideLink, IsNotLostToOneThatTurnsCallersAwayForAMoment) {
  TestPeer peer;
  for (const auto pause : kRetryDelays) {
    peer.reject();
    ASSERT_EQ(peer.connection.state(), State::kBackoff);
    peer.now += pause;
    peer.connection.on_time(peer.now);
    ASSERT_EQ(peer.connection.state(), State::kConnecting);
  }
  const auto socket = peer.accept();
  const transport::tcp::TcpWelcome welcome;
  ASSERT_EQ(::send(socket.get(), &welcome, sizeof welcome, 0), ssize_t{sizeof welcome});
  peer.step(POLLIN);
  EXPECT_EQ(peer.connection.state(), State::kConnected);
}

TEST(SideLink, GoesOnWithTheNextAddressWhereOneIsSilent) {
  const SilentPlace silent_peer;
  TestPeer peer{.before = silent_peer.address() + " "};
  for (int i = 0; i < 2; ++i) {  // the rest between two tries has its time, too
    ASSERT_LT(peer.connection.next_time(), kNever) << "it is dialed for ever";
    peer.now = peer.connection.next_time();
    peer.connection.on_time(peer.now);
  }
  peer.accept();
}

// As where another job's rank, or anything, listens at the first address of a host.
void expect_next_address_after(const std::function<void(int socket)>& answer) {
  uint16_t port = 0;
  const auto other_program = base::listen_on_all_interfaces(port);
  TestPeer peer{.before = base::format_address("127.0.0.1", port) + " "};
  peer.step(POLLOUT);
  const base::FileDescriptor socket(::accept4(other_program.get(), nullptr, nullptr, SOCK_CLOEXEC));
  answer(socket.get());
  peer.step(POLLIN);
  peer.connection.on_time(peer.now);
  ASSERT_EQ(peer.connection.state(), State::kConnecting);
  const auto rank = peer.accept();
  const transport::tcp::TcpWelcome welcome;
  ASSERT_EQ(::send(rank.get(), &welcome, sizeof welcome, 0), ssize_t{sizeof welcome});
  peer.step(POLLIN);
  EXPECT_EQ(peer.connection.state(), State::kConnected);
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
  TestPeer peer;
  for (const auto pause : kRetryDelays) {
    peer.reject();
    peer.now += pause;
    peer.connection.on_time(peer.now);
  }
  peer.reject();
  EXPECT_EQ(peer.connection.state(), State::kFailed);
}

}  // namespace
}  // namespace torch::comms::monitor
