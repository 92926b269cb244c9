#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <torchcomms/base/export.hpp>

#include "base/handles.hpp"

namespace torch::comms::base {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
};

// "10.0.0.1:4711", "[fe80::1%eth0]:4711" and back; numbers only, no names. Nothing for other text.
TC_API std::string address_text(const std::string& address, uint16_t port);
TC_API std::optional<SocketAddress> parse_address(const std::string& text);

// One socket for IPv4 and IPv6 on all interfaces, or for IPv4 alone where there is no IPv6; `port`
// 0 takes a free one, and says which. Throws CommError(kResourceExhausted, kSystem).
TC_API FileDescriptor listen_anywhere(uint16_t& port);

// Begins to connect; the socket becomes writable at the end. Empty, and errno, where it cannot.
TC_API FileDescriptor begin_connect(const SocketAddress& address) noexcept;
// 0 or the errno of a connection that has begun.
TC_API int connect_result(int socket) noexcept;

// No waiting for more to send; a silent peer is noticed after `patience`.
TC_API void tune(int socket, std::chrono::milliseconds patience) noexcept;

}  // namespace torch::comms::base
