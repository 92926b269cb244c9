#include "backends/ctran/session.hpp"

#include <utility>

#include "backends/nccl/api/nccl_api_backend.hpp"
#include "core/comm/error_context.hpp"
#include "core/work/deferred_teardown.hpp"

namespace torch::comms::ctran {

void end_if_gpu_failed(Session& session) noexcept {
  const auto failure = session.gpu_backend ? session.gpu_backend->failure() : std::nullopt;
  if (failure) session.group->abort(*failure);
}

void end_session(std::shared_ptr<Session> session, bool may_block) {
  if (!session) return;
  auto flight = session->in_flight;
  // announce_leave() comes before the wait for calls in flight, because such calls of other members
  // may wait for it.
  auto begin = [session = session.get()] {
    if (!session->gpu_backend) session->group->announce_leave();
  };
  auto leave = [session = std::move(session), may_block]() mutable {
    // The thread that found the failure may not have informed the peers yet.
    end_if_gpu_failed(*session);
    // Operations in flight on the device learn from the links which ranks leave.
    if (session->gpu_backend && !may_block) {
      session->group->announce_leave();
      session->gpu_backend->wait_idle();
      end_if_gpu_failed(*session);
      if (!session->gpu_backend->may_still_run()) session->group->announce_quiesced();
    }
    session.reset();
  };
  teardown_async(std::move(flight), std::move(leave), may_block, std::move(begin));
}

CommError parent_reconfigured_error(const Context& context) {
  return {Errc::kStaleGeneration,
          "the parent communicator was reconfigured, which closed the links of this split. Call "
          "split() on the parent again",
          context};
}

SessionRef::SessionRef(std::mutex& mutex, const std::shared_ptr<Session>& session)
    : mutex_(mutex), owner_(session) {
  std::lock_guard lock(mutex_);
  session_ = owner_;
}

SessionRef::~SessionRef() {
  {
    std::lock_guard lock(mutex_);
    if (session_ == owner_) session_.reset();  // not the last reference: owner_ has one
  }
  end_session(std::move(session_), /*may_block=*/false);
}

CallTimeout timeout_or_default_of(std::chrono::milliseconds own,
                                  std::chrono::milliseconds fallback) {
  // Later calls raise the same error, so the text says "that call".
  if (own.count() > 0) return {own, "timeout= of that call"};
  return {fallback, kCommTimeoutHelp};
}

}  // namespace torch::comms::ctran
