#include "backends/ctran/session.hpp"

#include <utility>

#include "core/explain.hpp"
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
  return {error.code(),
          error.why() + ". The limit is " + limit_words(issue.limit, issue.limit_is_own),
          error.context()};
}

}  // namespace torch::comms::ctran
