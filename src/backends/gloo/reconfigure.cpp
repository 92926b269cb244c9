#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/beside/peer_monitor.hpp"
#include "backends/gloo/call.hpp"
#include "backends/gloo/gloo_backend.hpp"
#include "backends/gloo/group.hpp"
#include "core/error_context.hpp"
#include "core/reconfiguration.hpp"

// Members that come and go.
namespace torch::comms {

InitHandle TorchCommGloo::getInitHandle() const {
  return reconfiguration_ ? reconfiguration_->handle() : handle_;
}

void TorchCommGloo::part() {
  if (group_ && group_->circle) group_->circle->close();
  gloo::retire(std::move(group_), /*may_block=*/true);
  store_.reset();
  member_.reset();
  ranks_.clear();
}

CommError TorchCommGloo::explained(const CommError& error) {
  const bool of_the_world = error.code() == Errc::kPeerFailed || error.code() == Errc::kTimeout ||
                            error.code() == Errc::kVendor;
  if (reconfiguration_ && of_the_world)
    if (const auto stale = reconfiguration_->check_excluded(error.context())) return *stale;
  return error;
}

WorkPtr TorchCommGloo::reconfigure(const ReconfigureOptions& options) {
  const Context context{.op = "reconfigure", .comm = name_, .rank = getRank()};
  auto& reconfiguration = Reconfiguration::require(reconfiguration_, context);
  const auto members = reconfiguration.parse_members(options, options_.timeout);
  auto wished = options_;
  for (const auto& [key, value] : options.hints) wished.hints[key] = value;
  *wishes_ = with_context(context, [&] { return common::parse_monitor_options(wished); });
  options_.hints = std::move(wished.hints);
  part();
  return reconfiguration.run(members, [this](const Rendezvous& met) { join(met, {}, name_, {}); });
}

}  // namespace torch::comms
