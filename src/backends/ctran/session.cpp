#include "backends/ctran/session.hpp"

#include <utility>

#include "backends/nccl/nccl_api_backend.hpp"
#include "core/deferred_teardown.hpp"
#include "core/error_context.hpp"

namespace torch::comms::ctran {

void end_with_device(Session& session) noexcept {
  const auto failure = session.on_device ? session.on_device->failure() : std::nullopt;
  if (failure) session.group->abort(*failure);
}

void end(std::shared_ptr<Session> session, bool may_block) {
  if (!session) return;
  auto flight = session->flight;
  // Before it waits for calls in flight, which may wait for such calls of other members.
  auto begin = [session = session.get()] {
    if (!session->on_device) session->group->announce_leave();
  };
  auto leave = [session = std::move(session), may_block]() mutable {
    // Whoever found that may not have told the others yet.
    end_with_device(*session);
    // What is under way there hears by the links of ranks that end.
    if (session->on_device && !may_block) {
      session->group->announce_leave();
      session->on_device->wait_idle();
      end_with_device(*session);
      if (!session->on_device->may_still_run()) session->group->announce_quiesced();
    }
    session.reset();
  };
  teardown_async(std::move(flight), std::move(leave), may_block, std::move(begin));
}

CommError parent_reconfigured(const Context& context) {
  return {Errc::kStaleGeneration,
          "the communicator that this one was split from has been reconfigured, which ended the "
          "links; split it again",
          context};
}

Borrowed::Borrowed(std::mutex& mutex, const std::shared_ptr<Session>& home)
    : mutex_(mutex), home_(home) {
  std::lock_guard lock(mutex_);
  session_ = home_;
}

Borrowed::~Borrowed() {
  {
    std::lock_guard lock(mutex_);
    if (session_ == home_) session_.reset();  // not the last one: `home_` has it
  }
  end(std::move(session_), /*may_block=*/false);
}

CallTimeout limit_of(std::chrono::milliseconds own, std::chrono::milliseconds otherwise) {
  // Later calls raise it, too: to them it is that call.
  if (own.count() > 0) return {own, "timeout= of that call"};
  return {otherwise, kCommTimeoutHelp};
}

}  // namespace torch::comms::ctran
