#include "backends/nccl/call.hpp"

#include "bootstrap/limit.hpp"
#include "core/bounded.hpp"

namespace torch::comms::nccl {

std::string limit_text(const Call& call, const char* while_doing) {
  std::string text =
      std::string(while_doing) + " within the limit of " + bootstrap::to_text(call.limit) + ", ";
  text += call.limit_is_own
              ? "timeout= of this call"
              : "the communicator's timeout (raise it for this call with timeout=, for all with "
                "timeout= of new_comm or TORCHCOMM_TIMEOUT_SECONDS)";
  return text + ". Not every rank took part in time, or one is too slow";
}

std::string launch_limit_text(const Call& call) { return limit_text(call, "not launched"); }

Wait launch_wait(const Call& call) {
  return {Clock::now() + call.limit, [&call] { return launch_limit_text(call); },
          [&call] { return call.context(); }, [] { check_interrupt(); }};
}

CommError with_context(const CommError& error, const Call& call) {
  if (!error.context().op.empty()) return error;
  return {error.code(), error.why(), call.context()};
}

}  // namespace torch::comms::nccl
