#include "backends/nccl/streams/nccl_device.hpp"

#include <string>
#include <utility>

#include <torchcomms/base/error.hpp>

namespace torch::comms::nccl {

std::shared_ptr<const gpu::Runtime> runtime_of(const Vendor& vendor) {
  if (vendor.runtime != nullptr) return gpu::Runtime::of(*vendor.runtime);
  throw CommError(Errc::kBackendUnavailable, "backend '" + std::string(vendor.backend) +
                                                 "' has no runtime for device xpu in this version; "
                                                 "it works only on CPU tensors");
}

at::DeviceType device_type_of(const Vendor& vendor) {
  // Torch built for HIP also calls its devices "cuda".
  return vendor.runtime != nullptr ? at::DeviceType::CUDA : at::DeviceType::XPU;
}

std::shared_ptr<NcclDevice> NcclDevice::open(const VendorLibrary& library, at::Device requested,
                                             std::optional<int> rank, bool high_priority_stream,
                                             size_t most_events) {
  const auto& vendor = library.vendor();
  const auto type = library.is_on_host_memory() ? at::DeviceType::CPU : device_type_of(vendor);
  if (requested.type() != type) {
    auto why = "backend '" + std::string(vendor.backend) + "' works on device " +
               c10::DeviceTypeName(type, /*lower_case=*/true) + " with " + library.path() +
               ", not on " + requested.str();
    if (vendor.host_variable != nullptr && !library.is_on_host_memory())
      why += std::string("; it works there with ") + vendor.host_variable + "=" + vendor.host_value;
    throw CommError(Errc::kUnsupported, why);
  }
  auto runtime = type == at::DeviceType::CPU ? gpu::Runtime::shared_cpu() : runtime_of(vendor);
  if (type != at::DeviceType::CPU) {
    requested = resolve_device(*runtime, requested, rank, std::string(vendor.backend));
    runtime->set_device(requested.index());
  }
  return std::make_shared<NcclDevice>(std::move(runtime), requested, high_priority_stream,
                                      most_events);
}

std::function<void()> NcclDevice::make_current_function(std::shared_ptr<const NcclDevice> device) {
  return [device = std::move(device)] {
    const auto& runtime = device->runtime();
    if (!device->torch_device().is_cpu()) runtime.set_device(device->torch_device().index());
    // The library may destroy a communicator during any capture: it does so when the last graph
    // that holds its operations is destroyed.
    runtime.set_relaxed_capture_mode();
  };
}

}  // namespace torch::comms::nccl
