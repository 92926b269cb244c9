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
  const bool is_peer_error = error.code() == Errc::kPeerFailed || error.code() == Errc::kTimeout ||
                             error.code() == Errc::kVendor;
  if (reconfiguration_ && is_peer_error)
    if (const auto stale = reconfiguration_->check_excluded(error.context())) return *stale;
  return error;
}

WorkPtr TorchCommGloo::reconfigure(const ReconfigureOptions& options) {
  const Context context{.op = "reconfigure", .comm = name_, .rank = getRank()};
  auto& reconfiguration = Reconfiguration::require(reconfiguration_, context);
  const auto members = reconfiguration.parse_members(options, options_.timeout);
  auto merged = options_;
  for (const auto& [key, value] : options.hints) merged.hints[key] = value;
  *monitor_options_ = with_context(context, [&] { return common::parse_monitor_options(merged); });
  options_.hints = std::move(merged.hints);
  disconnect_members();
  return reconfiguration.run(members, [this](const Rendezvous& rendezvous) {
    connect_members(rendezvous, {}, name_, {});
  });
}

}  // namespace torch::comms
