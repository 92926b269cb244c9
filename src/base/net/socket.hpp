#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::base {

// A socket address, IPv4 or IPv6.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

// Formats and parses addresses such as "10.0.0.1:4711" and "[fe80::1%eth0]:4711". Only numeric
// addresses are parsed, no host names. parse_address() returns: nothing for any other text.
TC_API std::string format_address(const std::string& address, uint16_t port);
TC_API std::optional<SocketAddress> parse_address(const std::string& text);

// Opens one listening socket on all interfaces, for IPv4 and IPv6, or for IPv4 alone if IPv6 is
// unavailable. `port` 0 takes a free port; the number is written back.
// Throws: CommError(kResourceExhausted, kSystem).
TC_API FileDescriptor listen_on_all_interfaces(uint16_t& port);

// Begins a nonblocking connect; the socket becomes writable when it has ended. Returns: an empty
// descriptor, with errno set, if the connect cannot begin.
TC_API FileDescriptor begin_connect(const SocketAddress& address) noexcept;
// Returns 0, or the errno of a connect that begin_connect() started.
TC_API int connect_result(int socket) noexcept;

// Sets TCP_NODELAY, keepalive and TCP_USER_TIMEOUT. The kernel closes the connection if the peer is
// silent, or does not take the data sent to it, for `patience`.
TC_API void set_keepalive_and_user_timeout(int socket, std::chrono::milliseconds patience) noexcept;
// Sets TCP_NODELAY and keepalive, but no TCP_USER_TIMEOUT: a suspended (SIGSTOP) peer process keeps
// its connection. A machine that vanishes with data unacknowledged also keeps it; tcp_ack_status()
// shows that.
TC_API void set_keepalive(int socket, std::chrono::milliseconds patience) noexcept;

// What the TCP stack of the peer's machine, not the peer process, has acknowledged.
struct TcpAckStatus {
  bool is_ack_pending = false;                  // data or window probes are unacknowledged
  std::chrono::milliseconds since_last_ack{0};  // since the last ACK from the peer
};
// Returns: nothing if the system does not provide the information.
TC_API std::optional<TcpAckStatus> tcp_ack_status(int socket) noexcept;

}  // namespace torch::comms::base
