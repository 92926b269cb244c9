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

constexpr std::chrono::milliseconds kKeepaliveTimeout{30'000};

// Where a rank listens; the test says what happens there.
struct TestListener {
  uint16_t port = 0;
  base::FileDescriptor listener = base::listen_on_all_interfaces(port);
  Endpoint endpoint() const {
    return {"tcp", 1, 7, "host", {base::format_address("127.0.0.1", port)}};
  }
  base::FileDescriptor accept() const {
    return base::FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
};

// Until the end of an attempt; `on_accept` gets each accepted connection.
void drive(Poller& poller, TcpConnector& connector, const TestListener& server,
           const std::function<void(base::FileDescriptor connection)>& on_accept) {
  while (!connector.is_done() && connector.error_text().empty()) {
    std::array<pollfd, 2> polled{
        {{poller.event_fd(), POLLIN, 0}, {server.listener.get(), POLLIN, 0}}};
    ASSERT_GT(::poll(polled.data(), polled.size(), 20'000), 0);
    if (polled[1].revents != 0) on_accept(server.accept());
    poller.poll();
  }
}

TEST(Connecting, ComesBackWhereItWasTurnedAwayForAMoment) {
  Poller poller;
  const TestListener server;
  TcpConnector connector(server.endpoint(), {}, poller, kKeepaliveTimeout);
  const auto begin = std::chrono::steady_clock::now();
  size_t accepted = 0;
  base::FileDescriptor open;
  drive(poller, connector, server, [&](base::FileDescriptor connection) {
    if (accepted++ % 2 == 0) poller.poll();  // its hello is here
    if (accepted <= kRetryDelays.size()) return;
    const TcpWelcome welcome;
    EXPECT_EQ(::send(connection.get(), &welcome, sizeof welcome, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof welcome));
    open = std::move(connection);
  });
  EXPECT_TRUE(connector.is_done()) << connector.error_text();
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            kRetryDelays[0] + kRetryDelays[1] + kRetryDelays[2]);
}

TEST(Connecting, FailsWithinTwoSecondsWhereItIsTurnedAwayForGood) {
  Poller poller;
  const TestListener server;
  const auto begin = std::chrono::steady_clock::now();
  TcpConnector connector(server.endpoint(), {}, poller, kKeepaliveTimeout);
  size_t accepted = 0;
  drive(poller, connector, server, [&](base::FileDescriptor) { ++accepted; });
  EXPECT_NE(connector.error_text().find("closed the connection"), std::string::npos)
      << connector.error_text();
  EXPECT_EQ(accepted, kRetryDelays.size() + 1);
  EXPECT_EQ(connector.error_code(), Errc::kPeerFailed);
  const auto took = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(took, kRetryDelays[0] + kRetryDelays[1] + kRetryDelays[2]);
  EXPECT_LT(took, std::chrono::seconds(2));
}

TEST(Connecting, WastesNoTimeWhereNobodyListens) {
  Poller poller;
  TestListener server;
  server.listener = {};
  const auto begin = std::chrono::steady_clock::now();
  TcpConnector connector(server.endpoint(), {}, poller, kKeepaliveTimeout);
  while (connector.error_text().empty()) {
    pollfd polled{poller.event_fd(), POLLIN, 0};
    ASSERT_GT(::poll(&polled, 1, 20'000), 0);
    poller.poll();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kRetryDelays[0]);
}

// The system's own limit of a connection, in ms.
int user_timeout_of(int socket) {
  int limit = 0;
  socklen_t size = sizeof limit;
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, &size), 0);
  return limit;
}

TEST(Connecting, OnceConnectedThePeersMachineHasTheWholeLimitForItsWelcome) {
  Poller poller;
  const TestListener server;
  TcpConnector connector(server.endpoint(), {}, poller, kKeepaliveTimeout);
  base::FileDescriptor open;
  drive(poller, connector, server, [&](base::FileDescriptor connection) {
    const TcpWelcome welcome;
    ::send(connection.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
    open = std::move(connection);
  });
  ASSERT_TRUE(connector.is_done()) << connector.error_text();
  EXPECT_EQ(user_timeout_of(connector.release_sockets().front().get()), kKeepaliveTimeout.count());
}

TEST(Connecting, AWelcomeOfAnotherVersionIsRefusedNamingBoth) {
  Poller poller;
  const TestListener server;
  TcpConnector connector(server.endpoint(), {}, poller, kKeepaliveTimeout);
  std::vector<base::FileDescriptor> open;
  drive(poller, connector, server, [&](base::FileDescriptor connection) {
    TcpWelcome welcome;
    welcome.version = TcpHello::kVersion + 1;
    ::send(connection.get(), &welcome, sizeof welcome, MSG_NOSIGNAL);
    open.push_back(std::move(connection));
  });
  for (const auto version : {TcpHello::kVersion + 1, TcpHello::kVersion + 0}) {
    const auto text = "version " + std::to_string(version);
    EXPECT_NE(connector.error_text().find(text), std::string::npos) << connector.error_text();
  }
}

}  // namespace
}  // namespace torch::comms::transport::tcp
