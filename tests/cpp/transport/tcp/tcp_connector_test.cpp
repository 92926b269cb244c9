#include "transport/tcp/tcp_connector.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <utility>

#include "base/net/socket.hpp"
#include "transport/connect/connect_retry.hpp"

namespace torch::comms::transport::tcp {
namespace {

constexpr std::chrono::milliseconds kSilence{30'000};

// Where a rank listens; the test says what happens there.
struct Place {
  uint16_t port = 0;
  base::FileDescriptor listener = base::listen_on_all_interfaces(port);
  Endpoint endpoint() const {
    return {"tcp", 1, 7, "host", {base::format_address("127.0.0.1", port)}};
  }
  base::FileDescriptor accept() const {
    return base::FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
};

// Until the end of an attempt; `keeper` is told of each caller.
void drive(Poller& poller, TcpConnector& connecting, const Place& place,
           const std::function<void(base::FileDescriptor caller)>& keeper) {
  while (!connecting.is_done() && connecting.error_text().empty()) {
    std::array<pollfd, 2> polled{
        {{poller.event_fd(), POLLIN, 0}, {place.listener.get(), POLLIN, 0}}};
    ASSERT_GT(::poll(polled.data(), polled.size(), 20'000), 0);
    if (polled[1].revents != 0) keeper(place.accept());
    poller.poll();
  }
}

TEST(Connecting, ComesBackWhereItWasTurnedAwayForAMoment) {
  Poller poller;
  const Place place;
  TcpConnector connecting(place.endpoint(), {}, poller, kSilence);
  const auto begin = std::chrono::steady_clock::now();
  size_t calls = 0;
  base::FileDescriptor kept;
  drive(poller, connecting, place, [&](base::FileDescriptor caller) {
    if (calls++ % 2 == 0) poller.poll();  // its hello is here
    if (calls <= kRetryDelays.size()) return;
    const TcpWelcome welcome;
    EXPECT_EQ(::send(caller.get(), &welcome, sizeof welcome, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof welcome));
    kept = std::move(caller);
  });
  EXPECT_TRUE(connecting.is_done()) << connecting.error_text();
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            kRetryDelays[0] + kRetryDelays[1] + kRetryDelays[2]);
}

TEST(Connecting, FailsWithinTwoSecondsWhereItIsTurnedAwayForGood) {
  Poller poller;
  const Place place;
  const auto begin = std::chrono::steady_clock::now();
  TcpConnector connecting(place.endpoint(), {}, poller, kSilence);
  size_t calls = 0;
  drive(poller, connecting, place, [&](base::FileDescriptor) { ++calls; });
  EXPECT_NE(connecting.error_text().find("closed the connection"), std::string::npos)
      << connecting.error_text();
  EXPECT_EQ(calls, kRetryDelays.size() + 1);
  EXPECT_EQ(connecting.error_code(), Errc::kPeerFailed);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, kRetryDelays[0] + kRetryDelays[1] + kRetryDelays[2]);
  EXPECT_LT(took, std::chrono::seconds(2));
}

TEST(Connecting, WastesNoTimeWhereNobodyListens) {
  Poller poller;
  Place place;
  place.listener = {};
  const auto begin = std::chrono::steady_clock::now();
  TcpConnector connecting(place.endpoint(), {}, poller, kSilence);
  while (connecting.error_text().empty()) {
    pollfd polled{poller.event_fd(), POLLIN, 0};
    ASSERT_GT(::poll(&polled, 1, 20'000), 0);
    poller.poll();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kRetryDelays[0]);
}

// The system's own limit of a connection, in ms.
int silence_of(int socket) {
  int limit = 0;
  socklen_t size = sizeof limit;
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size), 0);
  return limit;
}

TEST(Connecting, OnceConnectedThePeersMachineHasTheWholeLimitForItsWelcome) {
  Poller poller;
  const Place place;
  TcpConnector connecting(place.endpoint(), {}, poller, kSilence);
  base::FileDescriptor kept;
  drive(poller, connecting, place, [&](base::FileDescriptor caller) {
    const TcpWelcome welcome;
    ::send(caller.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
    kept = std::move(caller);
  });
  ASSERT_TRUE(connecting.is_done()) << connecting.error_text();
  EXPECT_EQ(silence_of(connecting.release_sockets().front().get()), kSilence.count());
}

TEST(Connecting, AWelcomeOfAnotherVersionIsRefusedNamingBoth) {
  Poller poller;
  const Place place;
  TcpConnector connecting(place.endpoint(), {}, poller, kSilence);
  std::vector<base::FileDescriptor> kept;
  drive(poller, connecting, place, [&](base::FileDescriptor caller) {
    TcpWelcome welcome;
    welcome.version = TcpHello::kVersion + 1;
    ::send(caller.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
    kept.push_back(std::move(caller));
  });
  for (const auto version : {TcpHello::kVersion + 1, TcpHello::kVersion + 0}) {
    const auto text = "version " + std::to_string(version);
    EXPECT_NE(connecting.error_text().find(text), std::string::npos) << connecting.error_text();
  }
}

}  // namespace
}  // namespace torch::comms::transport::tcp
