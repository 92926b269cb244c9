#include "core/comm/error_context.hpp"

#include "bootstrap/timeout.hpp"

namespace torch::comms {

std::string format_timeout(std::chrono::milliseconds limit, bool is_own) {
  return bootstrap::format_duration(limit) + ", " +
         std::string(is_own ? std::string_view("timeout= of this call") : kCommTimeoutHelp);
}

void require_valid_timeout(std::chrono::milliseconds timeout, const Context& context) {
  if (timeout < std::chrono::milliseconds::zero() || timeout > kMaxTimeout)
    throw CommError(
        Errc::kInvalidArgument,
        "timeout is " + std::to_string(timeout.count()) + " ms; allowed is from 0 to 1e9 seconds",
        context);
}

}  // namespace torch::comms
