#include "bootstrap/timeout.hpp"

#include <algorithm>
#include <cstdio>

namespace torch::comms::bootstrap {

std::string format_duration(std::chrono::milliseconds duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g s", static_cast<double>(duration.count()) / 1000.0);
  return text;
}

Deadline::Deadline(std::chrono::milliseconds limit, Clock::time_point from) {
  // The clock counts nanoseconds in 64 bits: milliseconds::max() as "no timeout" would overflow it.
  constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 365 * 30);
  end_ = from + std::clamp(limit, std::chrono::milliseconds::zero(), kForever);
}

std::chrono::milliseconds Deadline::remaining() const {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - Clock::now());
  return std::max(left, std::chrono::milliseconds::zero());
}

}  // namespace torch::comms::bootstrap
