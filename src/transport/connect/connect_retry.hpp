#pragma once

#include <array>
#include <cerrno>
#include <chrono>

namespace torch::comms::transport {

// Whoever is turned away, as by a process without a descriptor for now, calls again after these.
inline constexpr std::array kRetryDelays{
    std::chrono::milliseconds(50), std::chrono::milliseconds(200), std::chrono::milliseconds(800)};

// It is by the other side's doing that a connection has ended with `error` (an errno).
constexpr bool is_closed_by_peer(int error) noexcept {
  return error == EPIPE || error == ECONNRESET;
}

}  // namespace torch::comms::transport
