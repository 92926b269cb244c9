#include <utility>

#include <torchcomms/base/error.hpp>

#include "backends/common/peer_monitor.hpp"
#include "backends/gloo/gloo_backend.hpp"
#include "backends/gloo/gloo_call.hpp"
#include "backends/gloo/gloo_group.hpp"
#include "core/comm/error_context.hpp"
#include "core/rendezvous/reconfiguration.hpp"

// Init handles and reconfigure() of the Gloo backend.
namespace torch::comms {

InitHandle TorchCommGloo::getInitHandle() const {
  return reconfiguration_ ? reconfiguration_->handle() : init_handle_;
}

void TorchCommGloo::disconnect_members() {
  if (group_ && group_->group_monitor) group_->group_monitor->close();
  gloo::teardown_group(std::move(group_), /*may_block=*/true);
  store_.reset();
  comm_info_.reset();
  ranks_.clear();
}

CommError TorchCommGloo::explain_error(const CommError& error) {
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
  *monitor_options_ = with_context(context, [&] { return common::parse_monitor_options(wished); });
  options_.hints = std::move(wished.hints);
  disconnect_members();
  return reconfiguration.run(
      members, [this](const Rendezvous& met) { connect_members(met, {}, name_, {}); });
}

}  // namespace torch::comms
