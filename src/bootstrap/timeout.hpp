#pragma once

#include <chrono>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::bootstrap {

// How long a phase may take, and what to raise if that is too short.
struct NamedTimeout {
  std::chrono::milliseconds duration;
  std::string setting;  // "TORCHCOMM_INIT_TIMEOUT_SECONDS"
};

// "600 s", "0.25 s".
TC_API std::string format_duration(std::chrono::milliseconds duration);

// A moment on the monotonic clock; a jump of the wall clock does not move it.
class TC_API Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Deadline(std::chrono::milliseconds limit, Clock::time_point from = Clock::now());

  // Never negative.
  std::chrono::milliseconds remaining() const;
  bool has_passed() const { return remaining().count() == 0; }

 private:
  Clock::time_point end_;
};

}  // namespace torch::comms::bootstrap
