#include "transport/tcp/tcp_handshake.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <string>

namespace torch::comms::transport::tcp {

const char* why_not(const TcpHello& hello, const TcpEndpointId& endpoint_id) noexcept {
  if (hello.magic != TcpHello::kMagic) return "not ours";
  if (hello.version != TcpHello::kVersion) return "another version";
  if (!constant_time_equal(hello.job, endpoint_id.job)) return "another job";
  if (hello.instance != endpoint_id.instance || hello.to != endpoint_id.rank)
    return "meant for another rank";
  // The smaller rank connects, so that a pair makes one connection.
  if (hello.from < 0 || hello.from >= endpoint_id.rank)
    return "from a rank that does not connect here";
  if (hello.channels < 1 || hello.channels > kMaxChannels || hello.channel >= hello.channels)
    return "an impossible number of sockets";
  return nullptr;
}

std::string handshake_error(const TcpWelcome& welcome) {
  if (welcome.magic != TcpHello::kMagic) return "another program listens at this address";
  if (welcome.version != TcpHello::kVersion)
    return "the peer has version " + std::to_string(welcome.version) +
           " of the tcp handshake, this rank version " + std::to_string(TcpHello::kVersion) +
           "; all ranks must run the same torchcomms version";
  return {};
}

PendingTcpConnection::State PendingTcpConnection::read() noexcept {
  auto* at = reinterpret_cast<std::byte*>(&hello_);
  const auto got =
      ::recv(socket_.get(), at + bytes_read_, sizeof hello_ - bytes_read_, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? State::kIncomplete : State::kClosed;
  if (got == 0) return State::kClosed;
  bytes_read_ += static_cast<size_t>(got);
  // A peer with another protocol is closed after its first four bytes.
  if (bytes_read_ >= sizeof hello_.magic && hello_.magic != TcpHello::kMagic) return State::kClosed;
  return bytes_read_ == sizeof hello_ ? State::kComplete : State::kIncomplete;
}

}  // namespace torch::comms::transport::tcp
