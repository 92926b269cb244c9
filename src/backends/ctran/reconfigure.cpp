#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/ctran/ctran_backend.hpp"
#include "backends/ctran/hints.hpp"
#include "backends/ctran/on_device.hpp"
#include "backends/ctran/run.hpp"
#include "backends/ctran/session.hpp"
#include "core/reconfiguration.hpp"

// Members that come and go.
namespace torch::comms {

Reconfiguration& TorchCommCtran::reconfiguration(const char* op) const {
  return Reconfiguration::require(reconfiguration_, {.op = op, .comm = name_, .rank = rank_});
}

InitHandle TorchCommCtran::getInitHandle() const {
  return reconfiguration("get_init_handle").handle();
}

void TorchCommCtran::part() {
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
  if (session->on_device) {
    session->on_device->unregisterAbortHook(ctran::kHook);  // whoever asked for this needs no news
    session->on_device->abort();
  }
  // Members that are still at the last operation should end it, if nothing else is in flight.
  if (!session->flight->is_idle()) session->group->abort("reconfigure() was called");
  session->connected.superseded->store(true);
  const auto family = session->connected.family;
  ctran::end(std::move(session), /*may_block=*/true);
  // Splits may keep it, and works in flight their group.
  family->break_off(ctran::parent_reconfigured());
}

WorkPtr TorchCommCtran::reconfigure(const ReconfigureOptions& options) {
  auto& reconfiguration = this->reconfiguration("reconfigure");
  const auto members = reconfiguration.parse_members(options, options_.timeout);
  auto wished = options_;
  for (const auto& [key, value] : options.hints) wished.hints[key] = value;
  ctran::with_context([&] { return Context{.op = "reconfigure", .comm = name_, .rank = rank_}; },
                      [&] { read(wished); });
  options_.hints = std::move(wished.hints);
  part();
  auto work = reconfiguration.run(members, [this](const Rendezvous& met) { join(met); });
  if (work->isCompleted()) {
    was_aborted_.store(false);
    hooks_ran_.store(false);
  } else {
    part();  // an abort() may have come when it was connected
  }
  return work;
}

}  // namespace torch::comms
