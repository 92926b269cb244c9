#include "backends/device_kernels/team_kernels.hpp"

#include <algorithm>
#include <string>

#include "ctran/team/kernel_selection.hpp"

namespace torch::comms::ctran {

const DeviceWindow* TeamKernels::find_window_of(const void* at, size_t size_bytes) const noexcept {
  const auto found = std::ranges::find_if(
      open_windows_, [&](const auto& window) { return window->contains(at, size_bytes); });
  return found == open_windows_.end() ? nullptr : found->get();
}

void* TeamKernels::peer_address_of(int peer, const void* at, size_t size_bytes) const noexcept {
  const auto* const window = find_window_of(at, size_bytes);
  return window == nullptr ? nullptr : window->address_on_peer(peer, at);
}

void TeamKernels::set_zero_copy_send(bool enabled) {
  if (!enabled) return team_->enable_zero_copy_send({});
  team_->enable_zero_copy_send([this](int peer, const void* at, size_t size_bytes) {
    return peer_address_of(peer, at, size_bytes);
  });
}

std::optional<CommError> TeamKernels::failure(const Context& context) const {
  const auto stopped = team_->failure();
  if (!stopped) return std::nullopt;
  if (stopped->reason == kernels::StopReason::kPeerLeft && !is_quiesced(stopped->waited_for)) {
    const std::lock_guard lock(mutex_);
    if (warning_)
      return CommError(warning_->code(), warning_->why(), context.blaming(warning_->context()));
  }
  auto where = context;
  // For messages, the call's own name is more specific.
  if (where.op.empty() || stopped->collective != kernels::Collective::kExchange)
    where.op = std::string(name_of(stopped->collective));
  where.peer = stopped->waited_for;
  // Steps of windows have no launch number.
  const auto which = stopped->launch == 0
                         ? std::string()
                         : " (launch " + std::to_string(stopped->launch) + " of its kernels)";
  return to_error(*stopped, where, "the kernel", which);
}

bool TeamKernels::is_quiesced(int rank) const {
  return peer_events_.quiesced_ranks && rank >= 0 &&
         (peer_events_.quiesced_ranks() >> rank & 1) != 0;
}

std::optional<CommError> TeamKernels::find_failed_peer(const Context& context) {
  auto why = peer_events_.find_failed_peer ? peer_events_.find_failed_peer(context) : std::nullopt;
  if (peer_events_.quiesced_ranks) team_->mark_quiesced(peer_events_.quiesced_ranks());
  return why;
}

void TeamKernels::set_warning(const CommError& why) {
  {
    const std::lock_guard lock(mutex_);
    if (!warning_) warning_.emplace(why);
  }
  team_->mark_quiesced(~uint32_t{0});
}

bool TeamKernels::has_mismatch() const noexcept {
  const auto stopped = team_->failure();
  return stopped && stopped->reason == kernels::StopReason::kCallMismatch;
}

}  // namespace torch::comms::ctran
