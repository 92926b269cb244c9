#include <chrono>
#include <utility>

#include "backends/device_kernels/kernel_backend.hpp"
#include "backends/device_kernels/team_kernels.hpp"
#include "backends/nccl/streams/launch.hpp"
#include "ctran/team/kernel_handles.hpp"

// KernelBackend: what users' kernels need of a communicator, and kernels for a single rank.
namespace torch::comms {

std::string KernelBackend::set_up_single_rank() {
  const auto& device = launch_queue()->device();
  const nccl::NcclDevice::DeviceCallGuard scope(device);
  const gpu::CaptureModeGuard mode(device.runtime());
  const auto& at = device.torch_device();
  auto result =
      ctran::DeviceTeam::create(0, 1, at.has_index() ? at.index() : 0, device.shared_runtime(), "",
                                [](const std::string& text) { return std::vector{text}; });
  if (!result.team) return std::move(result.unavailable_reason);
  set_kernels(std::make_shared<ctran::TeamKernels>(std::move(result.team)));
  on_connected_late();
  return {};
}

std::optional<std::string> KernelBackend::windows_unavailable_reason() {
  if (getSize() > 1) before_collective();
  auto setup_error = getSize() > 1 || kernels_ ? std::string() : set_up_single_rank();
  if (kernels_) return std::nullopt;
  return getSize() > 1 ? kernels_unavailable_reason() : setup_error;
}

void KernelBackend::require_kernels() {
  if (const auto why = windows_unavailable_reason())
    throw CommError(Errc::kUnsupported, "kernels are not available: " + *why);
}

uint64_t KernelBackend::user_kernel_timeout_ns() const {
  using std::chrono::nanoseconds;
  return static_cast<uint64_t>(
      std::chrono::duration_cast<nanoseconds>(getOptions().timeout).count());
}

int64_t KernelBackend::get_device_transport() {
  constexpr std::string_view kMethod = "get_device_transport";
  const auto now = begin_call(OpName::new_window, false, {}, kMethod);
  run_collective_setup(now, [&] {
    require_kernels();
    if (transport_) return;
    auto result = ctran::DeviceTransport::create(
        kernels_->shared_team(), user_kernel_timeout_ns(),
        [&](const std::string& text) { return all_gather_strings(text, now); });
    if (!result.transport) throw CommError(Errc::kUnsupported, result.unavailable_reason);
    transport_ = std::move(result.transport);
    kernels_->retain(transport_);
    mark_user_kernels();
  });
  return reinterpret_cast<int64_t>(transport_->address());
}

}  // namespace torch::comms
