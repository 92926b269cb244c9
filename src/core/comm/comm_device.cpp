#include "core/comm/comm_device.hpp"

#include <optional>
#include <utility>

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torchcomms/base/error.hpp>

#include "base/os/loaded_library.hpp"
#include "gpu/cpu_runtime.hpp"

namespace torch::comms {

TorchDeviceGuard::TorchDeviceGuard(const gpu::Runtime& runtime, const at::Device& device) try {
  if (runtime.has_device())
    guard_.emplace(runtime, device.index());
  else
    initial_guard_.emplace(device);
} catch (const c10::Error& e) {
  throw CommError(Errc::kVendor, e.what_without_backtrace());
}

CommDevice::CommDevice(std::shared_ptr<const gpu::Runtime> runtime, at::Device at,
                       bool high_priority_stream, size_t most_events)
    : device_(at),
      runtime_(std::move(runtime)),
      events_(gpu::EventPool::make(*runtime_, most_events)),
      high_priority_(high_priority_stream) {
  const DeviceCallGuard scope(*this);
  own_stream_ = runtime_->create_stream(high_priority_stream);
}

CommDevice::~CommDevice() {
  for (auto* const stream : {own_stream_, second_stream_})
    if (stream != nullptr) runtime_->destroy_stream(stream);
}

gpu::NativeStream CommDevice::second_stream() {
  if (second_stream_ == nullptr) {
    const DeviceCallGuard scope(*this);
    second_stream_ = runtime_->create_stream(!high_priority_);
  }
  return second_stream_;
}

bool CommDevice::is_current_context(const void* context) const {
  if (runtime_->device() != device_.index()) return false;
  seen_context_.store(context, std::memory_order_relaxed);
  return true;
}

gpu::NativeStream current_stream_of(const at::Device& device) {
  if (device.is_cpu()) return gpu::cpu_current_stream();
  const c10::impl::VirtualGuardImpl torch(device.type());
  const auto current = torch.getStream(device);
  // The handle of a stream never changes, so the last one is cached: torch asks the runtime for the
  // device each time before it returns the handle.
  thread_local std::optional<std::pair<c10::Stream, gpu::NativeStream>> last;
  if (!last || last->first != current) last.emplace(current, current.native_handle());
  return last->second;
}

void synchronize_stream(const gpu::Runtime& runtime, gpu::NativeStream stream) noexcept try {
  if (runtime.capture_of(stream) == 0) runtime.synchronize(stream);
} catch (const CommError&) {
  // The device has failed or the process exits, so nothing runs on the stream any more.
}

void synchronize_torch_stream(const gpu::Runtime& runtime, const at::Device& device) noexcept try {
  const gpu::CaptureModeGuard mode(runtime);
  const auto stream = current_stream_of(device);
  if (device.is_cpu() && stream == nullptr) return;
  // The default stream refers to the current device.
  std::optional<TorchDeviceGuard> guard;
  if (!device.is_cpu()) guard.emplace(runtime, device);
  synchronize_stream(runtime, stream);
} catch (const std::exception&) {
  // The device has failed or the process exits; torch reports this by its own error types.
}

at::Device resolve_device(const gpu::Runtime& runtime, at::Device wanted, std::optional<int> rank,
                          const std::string& backend) {
  std::string why = "no reason given";
  const int count = runtime.device_count(&why);
  if (count == 0)
    throw CommError(Errc::kBackendUnavailable,
                    "backend '" + backend + "' has no device: the " + std::string(runtime.name()) +
                        " runtime (" + runtime.path() + ") found none (" + why +
                        "); a GPU and its driver are required. For CPU tensors use backend "
                        "'ctran' with device cpu");
  const int index = wanted.has_index() ? wanted.index() : rank ? *rank % count : runtime.device();
  if (index >= count)
    throw CommError(
        Errc::kInvalidArgument,
        "device is " + wanted.str() + ", allowed is index 0 to " + std::to_string(count - 1));
  return {wanted.type(), static_cast<at::DeviceIndex>(index)};
}

const gpu::RuntimeRow& torch_runtime_row() {
  return base::loaded_libraries(gpu::kHip.stem).empty() ? gpu::kCuda : gpu::kHip;
}

}  // namespace torch::comms
