#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/os/handles.hpp"
#include "transport/connect/endpoint.hpp"

namespace torch::comms::transport::tcp {

// The first bytes on every socket, from the connecting rank.
struct TcpHello {
  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  uint8_t channel = 0, channels = 1;
  int32_t from = -1, to = -1;
  uint64_t instance = 0;  // of the transport that it wants to reach
  // Random; sockets with the same number make one connection.
  uint64_t attempt = 0;
  Secret job = {};

  static constexpr uint32_t kMagic = 0x50435454;  // "TTCP"
  static constexpr uint16_t kVersion = 2;
};
static_assert(sizeof(TcpHello) == 48 && std::has_unique_object_representations_v<TcpHello>);

inline constexpr unsigned kMaxChannels = 8;

// The answer on each socket, once all sockets of the connection are accepted.
struct TcpWelcome {
  uint32_t magic = TcpHello::kMagic;
  uint16_t version = TcpHello::kVersion;
  uint16_t spare = 0;
};
static_assert(sizeof(TcpWelcome) == 8 && std::has_unique_object_representations_v<TcpWelcome>);

// Returns: why `welcome` is not valid: it comes from another program, or from another version;
// empty if it is valid.
TC_API std::string handshake_error(const TcpWelcome& welcome);

// The endpoint with which a TcpHello must match.
struct TcpEndpointId {
  int rank = 0;
  uint64_t instance = 0;
  Secret job = {};
};

// Returns: nullptr if `hello` may be accepted at `endpoint_id`, else why not. Uses only its
// arguments.
TC_API const char* why_not(const TcpHello& hello, const TcpEndpointId& endpoint_id) noexcept;

// An accepted connection that has not identified itself. At most one TcpHello is read from it.
class PendingTcpConnection {
 public:
  explicit PendingTcpConnection(base::FileDescriptor socket) noexcept
      : socket_(std::move(socket)) {}
  enum class State : uint8_t { kIncomplete, kComplete, kClosed };
  State read() noexcept;
  const TcpHello& hello() const noexcept { return hello_; }
  int socket() const noexcept { return socket_.get(); }
  base::FileDescriptor release_socket() noexcept { return std::move(socket_); }

 private:
  base::FileDescriptor socket_;
  TcpHello hello_;
  size_t bytes_read_ = 0;
};

}  // namespace torch::comms::transport::tcp
