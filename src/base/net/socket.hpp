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
// addresses are parsed, no host names. parse_address() returns: nothing for any other text, and for
// port 0.
TC_API std::string format_address(const std::string& address, uint16_t port);
TC_API std::optional<SocketAddress> parse_address(const std::string& text);

// Opens one listening socket on all interfaces, for IPv4 and IPv6, or for IPv4 alone if IPv6 is
// unavailable. `port` 0 takes a free port; the number is written back. The socket is nonblocking,
// and forked children do not keep it: see set_close_on_fork().
// Throws: CommError(kResourceExhausted, kSystem); kSystem also for a port that is in use.
TC_API FileDescriptor listen_on_all_interfaces(uint16_t& port);

// Begins a nonblocking connect; the socket becomes writable when the connect has ended. Forked
// children do not keep the socket. Returns: an empty descriptor, with errno set, if the connect
// cannot begin.
TC_API FileDescriptor begin_connect(const SocketAddress& address) noexcept;
// Returns 0, or the errno of a connect that begin_connect() started. Call it once, when the socket
// is writable: before, and after the first call, it returns 0 for a failed connect too.
TC_API int connect_result(int socket) noexcept;

// Sets TCP_NODELAY, keepalive and TCP_USER_TIMEOUT. The kernel closes the connection if the peer's
// machine is silent, or the peer does not take the data sent to it, for `timeout`. With a
// `timeout` of 0 or less, here and below, only TCP_NODELAY is set. Options that the system does
// not know are ignored.
TC_API void set_keepalive_and_user_timeout(int socket, std::chrono::milliseconds timeout) noexcept;
// Sets TCP_NODELAY and keepalive, but no TCP_USER_TIMEOUT: the connection to a suspended (SIGSTOP)
// peer process stays open. So does, for many minutes, a connection with unacknowledged data to a
// machine that vanished; tcp_ack_status() shows that.
TC_API void set_keepalive(int socket, std::chrono::milliseconds timeout) noexcept;

// The state of the acknowledgements of a TCP connection. The TCP stack of the peer's machine sends
// them, not the peer process.
struct TcpAckStatus {
  bool is_ack_pending = false;                  // data or probes are unacknowledged
  std::chrono::milliseconds since_last_ack{0};  // since the last ACK from the peer
};
// Reads the state of a TCP connection from the system. Returns: nothing if the system does not
// provide it.
TC_API std::optional<TcpAckStatus> tcp_ack_status(int socket) noexcept;

}  // namespace torch::comms::base
