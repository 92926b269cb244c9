#include "backends/nccl/device.hpp"

#include <map>
#include <mutex>
#include <string>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torchcomms/base/error.hpp>

#include "gpu/cpu.hpp"

namespace torch::comms::nccl {
namespace {

// A runtime is a library of the process: bound once, at first use. Nothing is kept of a failure.
std::shared_ptr<const gpu::Runtime> runtime_of(const gpu::RuntimeRow& row) {
  static std::mutex mutex;
  static std::map<const gpu::RuntimeRow*, std::shared_ptr<const gpu::Runtime>> known;
  const std::lock_guard lock(mutex);
  auto& runtime = known[&row];
  if (!runtime) runtime = std::make_shared<const gpu::Runtime>(gpu::Runtime::load(row));
  return runtime;
}

at::Device resolve(const Table& library, const gpu::Runtime& runtime, at::Device wanted,
                   std::optional<int> rank) {
  std::string why = "no reason given";
  const int count = runtime.device_count(&why);
  if (count == 0)
    throw CommError(Errc::kBackendUnavailable, "backend '" + std::string(library.vendor().backend) +
                                                   "' has no device: the " +
                                                   std::string(runtime.name()) + " runtime (" +
                                                   runtime.path() + ") finds none (" + why +
                                                   "); it needs a GPU and its driver. For CPU "
                                                   "tensors there is backend 'ctran'");
  const int index = wanted.has_index() ? wanted.index() : rank ? *rank % count : runtime.device();
  if (index >= count)
    throw CommError(
        Errc::kInvalidArgument,
        "device is " + wanted.str() + ", allowed is index 0 to " + std::to_string(count - 1));
  return {wanted.type(), static_cast<at::DeviceIndex>(index)};
}

}  // namespace

std::shared_ptr<const gpu::Runtime> runtime_of(const Vendor& vendor) {
  if (vendor.runtime != nullptr) return runtime_of(*vendor.runtime);
  throw CommError(Errc::kBackendUnavailable, "backend '" + std::string(vendor.backend) +
                                                 "' has no runtime for device xpu in this version; "
                                                 "it works with libraries for host memory alone");
}

at::DeviceType device_type_of(const Vendor& vendor) {
  // Torch built for HIP calls its devices cuda, too.
  return vendor.runtime != nullptr ? at::DeviceType::CUDA : at::DeviceType::XPU;
}

std::shared_ptr<Device> Device::open(const Table& library, at::Device wanted,
                                     std::optional<int> rank, bool high_priority_stream,
                                     size_t most_events) {
  const auto& vendor = library.vendor();
  const auto type = library.on_host_memory() ? at::DeviceType::CPU : device_type_of(vendor);
  if (wanted.type() != type)
    throw CommError(Errc::kUnsupported, "backend '" + std::string(vendor.backend) +
                                            "' works on device " +
                                            c10::DeviceTypeName(type, /*lower_case=*/true) +
                                            " with " + library.path() + ", not on " + wanted.str());
  std::shared_ptr<Device> device;
  if (type == at::DeviceType::CPU) {
    const auto& cpu = gpu::Runtime::cpu();
    device.reset(new Device(wanted, {std::shared_ptr<void>(), &cpu}));
  } else {
    auto runtime = runtime_of(vendor);
    const auto resolved = resolve(library, *runtime, wanted, rank);
    runtime->set_device(resolved.index());
    device.reset(new Device(resolved, std::move(runtime)));
  }
  device->events_ = gpu::EventPool::make(*device->runtime_, most_events);
  const Scope scope(*device);
  device->own_ = device->runtime_->create_stream(high_priority_stream);
  return device;
}

std::function<void()> Device::enter(std::shared_ptr<const Device> device) {
  return [device = std::move(device)] {
    if (!device->device_.is_cpu()) device->runtime_->set_device(device->device_.index());
  };
}

Device::~Device() {
  if (own_ != nullptr) runtime_->destroy_stream(own_);
}

gpu::NativeStream Device::current_stream() const {
  if (device_.is_cpu()) return gpu::cpu_current_stream();
  const c10::impl::VirtualGuardImpl torch(device_.type());
  return torch.getStream(device_).native_handle();
}

Device::Scope::Scope(const Device& device) : mode_(device.runtime()) {
  if (!device.torch_device().is_cpu())
    guard_.emplace(device.runtime(), device.torch_device().index());
}

}  // namespace torch::comms::nccl
