#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "core/comm/comm_device.hpp"
#include "vendor/vendor_library.hpp"

namespace torch::comms::nccl {

// Returns: the device type of a vendor's tensors, unless its library works on host memory.
at::DeviceType device_type_of(const Vendor& vendor);

// Returns: the runtime of the vendor's devices, loaded at the first call.
// Throws: CommError(kBackendUnavailable).
std::shared_ptr<const gpu::Runtime> runtime_of(const Vendor& vendor);

// The device of one vendor communicator, with its streams and events.
class NcclDevice final : public comms::CommDevice {
 public:
  using comms::CommDevice::CommDevice;

  // Opens the device and makes it current on the calling thread. A device without an index is
  // resolved by `rank`, or without `rank` to the current device.
  // Throws: CommError without context: kUnsupported for a device that the library does not support,
  // kBackendUnavailable for a device that does not exist.
  static std::shared_ptr<NcclDevice> open(const VendorLibrary& library, at::Device requested,
                                          std::optional<int> rank, bool high_priority_stream,
                                          size_t most_events);

  // Returns: a function that makes the device current on a thread that has not used it yet.
  static std::function<void()> make_current_function(std::shared_ptr<const NcclDevice> device);
};

}  // namespace torch::comms::nccl
