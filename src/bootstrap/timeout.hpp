#pragma once

#include <chrono>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::bootstrap {

// A timeout together with the setting that the user raises if it is too short.
struct NamedTimeout {
  std::chrono::milliseconds duration;
  std::string setting;  // words that follow "raise": "TORCHCOMM_INIT_TIMEOUT_SECONDS"
};

// Returns a text such as "600 s" or "0.25 s".
TC_API std::string format_duration(std::chrono::milliseconds duration);

// A point in time on the monotonic clock; changes of the wall clock do not move it.
class TC_API Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  // The deadline is `limit` after `from`. A negative `limit` counts as 0. At most 30 years count,
  // so milliseconds::max() may be used for no timeout.
  explicit Deadline(std::chrono::milliseconds limit, Clock::time_point from = Clock::now());

  // Returns the time left, rounded up; never negative.
  std::chrono::milliseconds remaining() const;
  bool has_passed() const { return remaining().count() == 0; }

 private:
  Clock::time_point end_;
};

}  // namespace torch::comms::bootstrap
