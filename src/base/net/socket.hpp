#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::base {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "10.0.0.1:4711", "[fe80::1%eth0]:4711" and back; numbers only, no names. Nothing for other text.
TC_API std::string format_address(const std::string& address, uint16_t port);
TC_API std::optional<SocketAddress> parse_address(const std::string& text);

// One socket for IPv4 and IPv6 on all interfaces, or for IPv4 alone where there is no IPv6; `port`
// 0 takes a free one, and says which. Throws CommError(kResourceExhausted, kSystem).
TC_API FileDescriptor listen_on_all_interfaces(uint16_t& port);

// Begins to connect; the socket becomes writable at the end. Empty, and errno, where it cannot.
TC_API FileDescriptor begin_connect(const SocketAddress& address) noexcept;
// 0 or the errno of a connection that has begun.
TC_API int connect_result(int socket) noexcept;

// No waiting for more to send. After `patience`, the system ends a connection whose peer is silent,
// or takes nothing of what waits for it.
TC_API void set_keepalive_and_user_timeout(int socket, std::chrono::milliseconds patience) noexcept;
// The same, but a peer may take its time: a process that stands still keeps its connection, and so
// does a machine that vanishes with something on its way to it, which tcp_ack_status() tells.
TC_API void set_keepalive(int socket, std::chrono::milliseconds patience) noexcept;

// What the peer's machine, not its process, says to what was sent.
struct TcpAckStatus {
  bool is_ack_pending = false;  // something was sent, or asked, that it has not answered
  std::chrono::milliseconds since_last_ack{0};  // since its last answer
};
// Nothing where the system does not tell.
TC_API std::optional<TcpAckStatus> tcp_ack_status(int socket) noexcept;

}  // namespace torch::comms::base
