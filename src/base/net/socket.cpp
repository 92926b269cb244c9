#include "base/net/socket.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include <torchcomms/base/error.hpp>

#include "base/os/fork_descriptors.hpp"
#include "base/os/system_error.hpp"

namespace torch::comms::base {
namespace {

FileDescriptor open_socket(int family) noexcept {
  FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket) set_close_on_fork(socket.get());
  return socket;
}

void set(int socket, int level, int name, int value) noexcept {
  // Errors are ignored: a system that does not know the option does without it.
  static_cast<void>(::setsockopt(socket, level, name, &value, sizeof value));
}

std::optional<uint16_t> parse_port(const std::string& text) {
  uint16_t port = 0;
  const auto end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, port);
  if (error != std::errc() || at != end || port == 0) return std::nullopt;
  return port;
}

bool bind_any(int socket, int family, uint16_t port) noexcept {
  if (family == AF_INET6) {
    set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    return ::bind(socket, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
  }
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_port = htons(port);
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0;
}

}  // namespace

std::string format_address(const std::string& address, uint16_t port) {
  const bool v6 = address.find(':') != std::string::npos;
  return (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
}

std::optional<SocketAddress> parse_address(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const auto port = parse_port(text.substr(colon + 1));
  auto host = text.substr(0, colon);
  if (!port) return std::nullopt;
  SocketAddress parsed;
  if (!host.starts_with('[')) {
    auto& v4 = reinterpret_cast<sockaddr_in&>(parsed.storage);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(*port);
    parsed.size = sizeof v4;
    if (::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1) return std::nullopt;
    return parsed;
  }
  if (!host.ends_with(']')) return std::nullopt;
  host = host.substr(1, host.size() - 2);
  auto& v6 = reinterpret_cast<sockaddr_in6&>(parsed.storage);
  if (const auto percent = host.find('%'); percent != std::string::npos) {
    v6.sin6_scope_id = ::if_nametoindex(host.c_str() + percent + 1);
    host.resize(percent);
  }
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(*port);
  parsed.size = sizeof v6;
  if (::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  return parsed;
}

FileDescriptor listen_on_all_interfaces(uint16_t& port) {
  for (const int family : {AF_INET6, AF_INET}) {
    auto socket = open_socket(family);
    if (!socket) continue;
    set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (!bind_any(socket.get(), family, port) || ::listen(socket.get(), SOMAXCONN) != 0) continue;
    SocketAddress own;
    own.size = sizeof own.storage;
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size);
    port = ntohs(reinterpret_cast<const sockaddr_in*>(&own.storage)
                     ->sin_port);  // sin_port lies at the same place in sockaddr_in6
    return socket;
  }
  throw system_error("cannot listen on TCP port " + std::to_string(port));
}

FileDescriptor begin_connect(const SocketAddress& address) noexcept {
  auto socket = open_socket(address.storage.ss_family);
  if (!socket) return socket;
  if (::connect(socket.get(), address.get(), address.size) == 0 || errno == EINPROGRESS)
    return socket;
  const int error = errno;
  socket = {};
  errno = error;
  return socket;
}

int connect_result(int socket) noexcept {
  int error = 0;
  socklen_t size = sizeof error;
  if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

void set_keepalive_and_user_timeout(int socket, std::chrono::milliseconds timeout) noexcept {
  set_keepalive(socket, timeout);
  if (timeout.count() > 0)
    set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout.count()));
}

void set_keepalive(int socket, std::chrono::milliseconds timeout) noexcept {
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 0);
  const auto wait = static_cast<int>(timeout.count());
  if (wait <= 0) return;
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, wait / 1000 / 4));
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, wait / 1000 / 8));
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, 6);
}

std::optional<TcpAckStatus> tcp_ack_status(int socket) noexcept {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof info)
    return {};
  // The kernel sends probes to a peer that has no receive window.
  return TcpAckStatus{info.tcpi_unacked > 0 || info.tcpi_probes > 0,
                      std::chrono::milliseconds(info.tcpi_last_ack_recv)};
}

}  // namespace torch::comms::base
