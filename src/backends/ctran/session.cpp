#include "backends/ctran/session.hpp"

#include <utility>

#include "core/rendezvous.hpp"
#include "core/retire.hpp"

namespace torch::comms::ctran {

void end(std::shared_ptr<Session> session, bool may_block) {
  if (!session) return;
  auto flight = session->flight;
  retire(
      std::move(flight), [session = std::move(session)]() mutable { session.reset(); }, may_block);
}

CommError explained(const CommError& error, const Issue& issue) {
  if (error.code() != Errc::kTimeout) return error;
  std::string why = error.why() + ". The limit is " + bootstrap::to_text(issue.limit) + ", ";
  why += issue.limit_is_own
             ? "timeout= of this call"
             : "the communicator's timeout (raise it for this call with timeout=, for all with "
               "timeout= of new_comm or TORCHCOMM_TIMEOUT_SECONDS)";
  return {error.code(), why, error.context()};
}

}  // namespace torch::comms::ctran
