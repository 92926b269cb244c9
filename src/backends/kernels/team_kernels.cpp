#include "backends/kernels/team_kernels.hpp"

#include <algorithm>
#include <string>

#include "ctran/device/selection.hpp"

namespace torch::comms::ctran {

const DeviceWindow* TeamKernels::region_of(const void* at, size_t size_bytes) const noexcept {
  const auto found = std::ranges::find_if(
      regions_, [&](const auto& window) { return window->has(at, size_bytes); });
  return found == regions_.end() ? nullptr : found->get();
}

void* TeamKernels::place_of(int peer, const void* at, size_t size_bytes) const noexcept {
  const auto* const window = region_of(at, size_bytes);
  return window == nullptr ? nullptr : window->mapped_by(peer, at);
}

void TeamKernels::write_straight(bool wished) {
  if (!wished) return team_->write_straight({});
  team_->write_straight([this](int peer, const void* at, size_t size_bytes) {
    return place_of(peer, at, size_bytes);
  });
}

std::optional<CommError> TeamKernels::stopped(const Context& context) const {
  const auto stopped = team_->stopped();
  if (!stopped) return std::nullopt;
  auto where = context;
  where.op = std::string(name_of(stopped->collective));
  where.peer = stopped->waited_for;
  const auto whom = stopped->waited_for < 0
                        ? std::string()
                        : ", waiting for rank " + std::to_string(stopped->waited_for);
  // Steps beside windows are not counted.
  const auto which = stopped->launch == 0
                         ? std::string()
                         : " (launch " + std::to_string(stopped->launch) + " of its kernels)";
  if (stopped->reason == ctran::kernels::Stop::kLimit)
    return CommError(Errc::kTimeout, "the kernel passed its limit" + whom + which, where);
  if (stopped->reason == kernels::Stop::kOtherCall)
    return CommError(Errc::kMismatch, words_of_other_call(where.peer) + which, where);
  if (stopped->reason == kernels::kOtherRegion)
    return CommError(
        Errc::kMismatch,
        "the tensor of rank " + std::to_string(stopped->waited_for) +
            " is in another window, or has another size; hint registered promises "
            "that outputs, and inputs of reductions, are in the same one on all ranks, "
            "and registered=copies that they are at the same place of it" +
            which,
        where);
  if (stopped->reason == ctran::kernels::Stop::kMismatch)
    return CommError(Errc::kMismatch,
                     "the two sides of a message with rank " + std::to_string(stopped->waited_for) +
                         " have different sizes" + which,
                     where);
  if (stopped->reason == ctran::kernels::Stop::kCounts) {
    const bool are_own = stopped->waited_for == team_->rank();
    return CommError(are_own ? Errc::kInvalidArgument : Errc::kMismatch,
                     "the counts of rank " + std::to_string(stopped->waited_for) +
                         " are impossible: negative, beyond its tensor, or not one for what it has "
                         "for itself" +
                         which,
                     where);
  }
  return CommError(Errc::kAborted, "the kernel was aborted" + whom + which, where);
}

bool TeamKernels::disagree() const noexcept {
  const auto stopped = team_->stopped();
  return stopped && stopped->reason == kernels::Stop::kOtherCall;
}

}  // namespace torch::comms::ctran
