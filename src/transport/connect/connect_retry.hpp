#pragma once

#include <array>
#include <cerrno>
#include <chrono>

namespace torch::comms::transport {

// Delays before a connector retries after the peer has closed the connection instead of accepting
// it. A peer's process without a free descriptor does that.
inline constexpr std::array kRetryDelays{
    std::chrono::milliseconds(50), std::chrono::milliseconds(200), std::chrono::milliseconds(800)};

// Returns: whether `error` (an errno) says that the peer has closed the connection.
constexpr bool is_closed_by_peer(int error) noexcept {
  return error == EPIPE || error == ECONNRESET;
}

}  // namespace torch::comms::transport
