#pragma once

#include <algorithm>
#include <chrono>

namespace torch::comms::bootstrap {

// Returns: how long a rank that has waited `waited` for a key of a store pauses before it asks
// again. The pause grows with the time waited, so that a wait costs the store's server a number of
// requests that grows with the logarithm of its length: thousands of ranks ask one server.
constexpr std::chrono::nanoseconds poll_pause(std::chrono::nanoseconds waited) {
  using std::chrono::nanoseconds;
  constexpr nanoseconds kShortest = std::chrono::microseconds(100);
  constexpr nanoseconds kLongest = std::chrono::milliseconds(250);
  return std::clamp<nanoseconds>(waited / 4, kShortest, kLongest);
}

}  // namespace torch::comms::bootstrap
