#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/comm/comm_device.hpp"
#include "vendor/vendor_library.hpp"

namespace torch::comms::nccl {

// The type of device that a vendor's tensors are on, where its library has not said that it works
// on host memory.
at::DeviceType device_type_of(const Vendor& vendor);

// The runtime of its devices, bound at first use. Throws CommError(kBackendUnavailable).
std::shared_ptr<const gpu::Runtime> runtime_of(const Vendor& vendor);

// Where a vendor's communicator has its tensors.
class NcclDevice final : public comms::CommDevice {
 public:
  using comms::CommDevice::CommDevice;

  // Resolves a device without an index by `rank`, without one to the current device, and makes it
  // current. Throws CommError without context: kUnsupported for a device that the library does not
  // work on, kBackendUnavailable for one that is not there.
  static std::shared_ptr<NcclDevice> open(const VendorLibrary& library, at::Device wanted,
                                          std::optional<int> rank, bool high_priority_stream,
                                          size_t most_events);

  // What makes it current in a thread that has not seen it.
  static std::function<void()> make_current_function(std::shared_ptr<const NcclDevice> device);
};

}  // namespace torch::comms::nccl
