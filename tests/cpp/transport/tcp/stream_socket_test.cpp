#include "transport/tcp/stream_socket.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/net/socket.hpp"

namespace torch::comms::transport::tcp {
namespace {

struct Nobody final : FrameSink {
  Bytes payload_target(const Frame&) noexcept override { return {}; }
  bool deliver(const Frame&, ConstBytes) noexcept override { return true; }
};

struct Connection {
  base::FileDescriptor here, there;
  Connection() {
    uint16_t port = 0;
    const auto listener = base::listen_on_all_interfaces(port);
    const auto address = base::parse_address(base::format_address("127.0.0.1", port));
    here = base::FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(here.get(), address->get(), address->size), 0);
    there = base::FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(there);
  }
};

Frame frame_of(ConstBytes payload) {
  Frame frame;
  frame.kind = FrameKind::kEager;
  frame.bytes = static_cast<uint32_t>(payload.size());
  return frame;
}

TEST(Lane, SaysWhatThisRankCouldNotSend) {
  Connection connection;
  StreamSocket stream(std::move(connection.here), 1u << 20, 1);
  base::Mapping unreadable(::mmap(nullptr, 1u << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                           1u << 16);
  const ConstBytes payload(unreadable.bytes());
  uint32_t frames_in_use = 0;
  // Some systems take the header first.
  stream.try_send(frame_of(payload), std::span(&payload, 1), &frames_in_use);
  stream.flush();
  EXPECT_NE(stream.error_text().find("Bad address"), std::string::npos) << stream.error_text();
  EXPECT_EQ(stream.error_code(), Errc::kSystem);
}

TEST(Lane, SaysHowItsConnectionEndedThoughItWasTheSenderWhoHeard) {
  Connection connection;
  const char unread[4] = {};
  ASSERT_EQ(::send(connection.here.get(), unread, sizeof unread, 0), 4);
  pollfd polled{connection.there.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&polled, 1, -1), 1);
  connection.there = {};  // with something unread: a reset
  polled = {connection.here.get(), 0, 0};
  ASSERT_EQ(::poll(&polled, 1, -1), 1);
  StreamSocket stream(std::move(connection.here), 1u << 20, 1);
  uint32_t frames_in_use = 0;
  const ConstBytes payload;
  EXPECT_FALSE(stream.try_send(frame_of(payload), {}, &frames_in_use));
  EXPECT_EQ(stream.error_text(), "");
  Nobody nobody;
  stream.receive(nobody);
  EXPECT_NE(stream.error_text().find("Connection reset by peer"), std::string::npos)
      << stream.error_text();
  EXPECT_EQ(stream.error_code(), Errc::kPeerFailed);
}

TEST(Lane, TellsItsOwnErrorsFromThoseOfTheConnection) {
  for (const int own : {EFAULT, EMSGSIZE, EINVAL, EBADF, ENOTSOCK, ENOMEM, ENOBUFS})
    EXPECT_TRUE(is_local_error(own)) << std::strerror(own);
  for (const int other : {EPIPE, ECONNRESET, ECONNREFUSED, ETIMEDOUT, EHOSTUNREACH, ENETUNREACH,
                          EACCES, EPERM, ENOTCONN, EPROTO, ENOPROTOOPT})
    EXPECT_FALSE(is_local_error(other)) << std::strerror(other);
}

// As a firewall does that has begun to reject what is sent: the socket itself goes on, and nothing
// that could be read says that it is over.
TEST(Lane, ARejectedSenderBlamesTheConnectionAtOnce) {
  base::FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto address = base::parse_address("127.0.0.1:1");  // nobody is there
  ASSERT_EQ(::connect(socket.get(), address->get(), address->size), 0);
  ASSERT_EQ(::send(socket.get(), "", 1, 0), 1);
  StreamSocket stream(std::move(socket), 1u << 20, 1);
  uint32_t frames_in_use = 0;
  const ConstBytes payload;
  EXPECT_FALSE(stream.try_send(frame_of(payload), {}, &frames_in_use));
  EXPECT_NE(stream.error_text().find("Connection refused"), std::string::npos)
      << stream.error_text();
  EXPECT_EQ(stream.error_code(), Errc::kPeerFailed);
}

}  // namespace
}  // namespace torch::comms::transport::tcp
