#pragma once

#include <algorithm>
#include <chrono>

namespace torch::comms::bootstrap {

// Returns how long a rank pauses before it polls the store again, after it has waited `waited` for
// a key. The pause grows with the time waited. So the number of requests grows with the logarithm
// of the wait, which matters because thousands of ranks poll one server.
constexpr std::chrono::nanoseconds poll_pause(std::chrono::nanoseconds waited) {
  using std::chrono::nanoseconds;
  constexpr nanoseconds kShortest = std::chrono::microseconds(100);
  constexpr nanoseconds kLongest = std::chrono::milliseconds(250);
  return std::clamp<nanoseconds>(waited / 4, kShortest, kLongest);
}

}  // namespace torch::comms::bootstrap
