#include "core/explain.hpp"

#include "bootstrap/timeout.hpp"

namespace torch::comms {

std::string limit_words(std::chrono::milliseconds limit, bool is_own) {
  return bootstrap::format_duration(limit) + ", " +
         std::string(is_own ? std::string_view("timeout= of this call") : kLimitOfComm);
}

void require_limit(std::chrono::milliseconds timeout, const Context& context) {
  if (timeout < std::chrono::milliseconds::zero() || timeout > kLongestLimit)
    throw CommError(
        Errc::kInvalidArgument,
        "timeout is " + std::to_string(timeout.count()) + " ms; allowed is from 0 to 1e9 seconds",
        context);
}

}  // namespace torch::comms
