#include "backends/nccl/call.hpp"

#include "bootstrap/timeout.hpp"
#include "core/error_context.hpp"
#include "core/interruptible_call.hpp"

namespace torch::comms::nccl {

std::string limit_text(const Call& call, const char* while_doing) {
  const auto words = call.knob.empty()
                         ? format_timeout(call.limit, call.limit_is_own)
                         : bootstrap::format_duration(call.limit) + ", " + std::string(call.knob);
  return std::string(while_doing) + " within the limit of " + words +
         ". Not every rank took part in time, or one is too slow";
}

WaitOptions launch_wait(const Call& call) {
  return {Clock::now() + call.limit, [&call] { return limit_text(call, "not launched"); },
          [&call] { return call.context(); }, [] { check_interrupt(); }};
}

CommError with_context(const CommError& error, const Call& call) {
  if (!error.context().op.empty()) return error;
  return {error.code(), error.why(), call.context()};
}

}  // namespace torch::comms::nccl
