#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ctran/team/device_team.hpp"
#include "ctran/team/device_window.hpp"
#include "transport/nvl/symmetric_memory.hpp"

// Handles of a window and of a team for users' kernels: addresses of plain data
// (include/torchcomms/device) in this rank's device memory.
namespace torch::comms::ctran {

// The handle of a window.
// Threads: as DeviceTeam.
// Lifetime: kernels that use the handle end before it is destroyed.
class WindowHandle {
 public:
  // -1: as many as possible.
  struct WindowHandleCounts {
    int signals = -1, counters = -1, barriers = 1;
  };
  // Local; a rank's waits are for its own signals and counters. The device is current.
  // Throws: CommError without context: kInvalidArgument, kOutOfRange for counts that are not
  // allowed; kVendor.
  WindowHandle(std::shared_ptr<const DeviceWindow> window, const WindowHandleCounts& counts,
               uint64_t limit_ns);

  const void* address() const noexcept;

  // Registers a source of puts.
  // Throws: CommError(kResourceExhausted) if there are torchcomms::device::kMostBuffers already;
  // CommError(kVendor).
  const void* add_buffer(void* at, size_t size_bytes);
  // Returns: false if there is no such buffer.
  bool remove_buffer(const void* handle);

 private:
  const std::shared_ptr<const DeviceWindow> window_;
  std::vector<bool> used_buffers_;  // which buffers of the area are in use
};

// Messages between pairs of ranks by users' kernels, through memory of a team.
class DeviceTransport {
 public:
  // The result of create(): either all ranks have a transport, or none.
  struct DeviceTransportResult {
    std::unique_ptr<DeviceTransport> transport;
    std::string unavailable_reason;  // the same text on all ranks
  };
  // Collective. The device is current.
  // Throws: what `exchange` throws; CommError(kVendor).
  static DeviceTransportResult create(const std::shared_ptr<DeviceTeam>& team, uint64_t limit_ns,
                                      const transport::nvl::AllGatherStrings& exchange);

  const void* address() const noexcept;
  size_t size_bytes() const noexcept { return memory_->size_bytes(); }

 private:
  DeviceTransport(std::shared_ptr<DeviceTeam> team,
                  std::unique_ptr<transport::nvl::SymmetricMemory> memory)
      : team_(std::move(team)), memory_(std::move(memory)) {}

  const std::shared_ptr<DeviceTeam> team_;  // kernels poll its control words while they wait
  const std::unique_ptr<transport::nvl::SymmetricMemory> memory_;
};

}  // namespace torch::comms::ctran
