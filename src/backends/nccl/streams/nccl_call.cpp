#include "backends/nccl/streams/nccl_call.hpp"

#include "bootstrap/timeout.hpp"
#include "core/comm/error_context.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms::nccl {

std::string format_timeout_error(const NcclCall& call, const char* while_doing) {
  const auto timeout_text =
      call.timeout_setting.empty()
          ? format_timeout(call.timeout, call.has_own_timeout)
          : bootstrap::format_duration(call.timeout) + ", " + std::string(call.timeout_setting);
  return std::string(while_doing) + " within the timeout of " + timeout_text +
         ". Not every rank took part in time, or one is too slow";
}

WaitOptions launch_wait(const NcclCall& call) {
  return {Clock::now() + call.timeout,
          [&call] { return format_timeout_error(call, "not launched"); },
          [&call] { return call.context(); }, [] { check_interrupt(); }};
}

CommError with_context(const CommError& error, const NcclCall& call) {
  if (!error.context().op.empty()) return error;
  return {error.code(), error.why(), call.context().blaming(error.context())};
}

}  // namespace torch::comms::nccl
