#include "backends/ctran/session.hpp"

#include <utility>

#include "backends/nccl/vendor_backend.hpp"
#include "core/explain.hpp"
#include "core/retire.hpp"

namespace torch::comms::ctran {

void end(std::shared_ptr<Session> session, bool may_block) {
  if (!session) return;
  auto flight = session->flight;
  auto leave = [session = std::move(session)]() mutable {
    // Whoever found that may not have told the others yet.
    if (session->on_device && session->on_device->isAborted())
      session->group->abort(kFailedOnDevice);
    session.reset();
  };
  retire(std::move(flight), std::move(leave), may_block);
}

CommError explained(const CommError& error, const Issue& issue) {
  if (error.code() != Errc::kTimeout) return error;
  return {error.code(),
          error.why() + ". The limit is " + limit_words(issue.limit, issue.limit_is_own),
          error.context()};
}

}  // namespace torch::comms::ctran
