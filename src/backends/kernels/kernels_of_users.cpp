#include <chrono>
#include <utility>

#include "backends/kernels/kernels_backend.hpp"
#include "backends/kernels/team_kernels.hpp"
#include "backends/nccl/launch.hpp"
#include "ctran/device/kernel_handles.hpp"

// What kernels of users need of a communicator, and a rank alone for windows.
namespace torch::comms {

std::string TorchCommKernels::meet_alone() {
  const auto& device = launch_queue()->device();
  const nccl::NcclDevice::DeviceCallGuard scope(device);
  const gpu::CaptureModeGuard mode(device.runtime());
  const auto& at = device.torch_device();
  auto made =
      ctran::DeviceTeam::create(0, 1, at.has_index() ? at.index() : 0, device.shared_runtime(), "",
                                [](const std::string& words) { return std::vector{words}; });
  if (!made.team) return std::move(made.unavailable_reason);
  set_kernels(std::make_shared<ctran::TeamKernels>(std::move(made.team)));
  connected_later();
  return {};
}

std::optional<std::string> TorchCommKernels::why_no_windows() {
  if (getSize() > 1) before_collective();
  auto why_alone = getSize() > 1 || kernels_ ? std::string() : meet_alone();
  if (kernels_) return std::nullopt;
  return getSize() > 1 ? why_no_kernels() : why_alone;
}

void TorchCommKernels::require_kernels() {
  if (const auto why = why_no_windows())
    throw CommError(Errc::kUnsupported, "there are no kernels: " + *why);
}

uint64_t TorchCommKernels::limit_ns_of_users_kernels() const {
  using std::chrono::nanoseconds;
  return static_cast<uint64_t>(
      std::chrono::duration_cast<nanoseconds>(getOptions().timeout).count());
}

int64_t TorchCommKernels::get_device_transport() {
  constexpr std::string_view kMethod = "get_device_transport";
  const auto now = begin_call(OpName::new_window, false, {}, kMethod);
  meet_for(now, [&] {
    require_kernels();
    if (transport_) return;
    auto made = ctran::DeviceTransport::create(
        kernels_->shared_team(), limit_ns_of_users_kernels(),
        [&](const std::string& words) { return tell_all(words, now); });
    if (!made.transport) throw CommError(Errc::kUnsupported, made.unavailable_reason);
    transport_ = std::move(made.transport);
    kernels_->keep(transport_);
    note_users_kernels();
  });
  return reinterpret_cast<int64_t>(transport_->address());
}

}  // namespace torch::comms
