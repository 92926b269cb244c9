#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/ctran/call_context.hpp"
#include "backends/ctran/ctran_backend.hpp"
#include "backends/ctran/ctran_options.hpp"
#include "backends/ctran/gpu_backend.hpp"
#include "backends/ctran/session.hpp"
#include "core/rendezvous/reconfiguration.hpp"

// Init handles and reconfigure() of TorchCommCtran.
namespace torch::comms {

Reconfiguration& TorchCommCtran::require_reconfiguration(const char* op) const {
  return Reconfiguration::require(reconfiguration_, {.op = op, .comm = name_, .rank = rank_});
}

InitHandle TorchCommCtran::getInitHandle() const {
  return require_reconfiguration("get_init_handle").handle();
}

void TorchCommCtran::disconnect_members() {
  std::shared_ptr<ctran::Session> session;
  {
    std::lock_guard lock(mutex_);
    session = std::exchange(session_, nullptr);
  }
  if (session && session->group->failure()) was_aborted_.store(true);
  rank_ = size_ = -1;
  identity_ = 0;
  ranks_.clear();
  if (!session) return;
  if (session->gpu_backend) {
    session->gpu_backend->unregisterAbortHook(
        ctran::kAbortHookId);  // reconfigure() itself causes the abort
    session->gpu_backend->abort();
  }
  // The abort also ends the last operation on members that are still in it.
  if (!session->in_flight->is_idle()) session->group->abort("reconfigure() was called");
  session->connected_links.is_superseded->store(true);
  const auto link_context = session->connected_links.link_context;
  ctran::end_session(std::move(session), /*may_block=*/true);
  // Splits may keep the link context alive, and works in flight keep their group alive.
  link_context->break_off(ctran::parent_reconfigured_error());
}

WorkPtr TorchCommCtran::reconfigure(const ReconfigureOptions& options) {
  auto& reconfiguration = this->require_reconfiguration("reconfigure");
  const auto members = reconfiguration.parse_members(options, options_.timeout);
  auto merged = options_;
  for (const auto& [key, value] : options.hints) merged.hints[key] = value;
  ctran::with_context([&] { return Context{.op = "reconfigure", .comm = name_, .rank = rank_}; },
                      [&] { parse_options(merged); });
  options_.hints = std::move(merged.hints);
  disconnect_members();
  auto work = reconfiguration.run(
      members, [this](const Rendezvous& rendezvous) { connect_members(rendezvous); });
  if (work->isCompleted()) {
    was_aborted_.store(false);
    have_abort_hooks_run_.store(false);
  } else {
    disconnect_members();  // an abort() may have come after the links were connected
  }
  return work;
}

}  // namespace torch::comms
