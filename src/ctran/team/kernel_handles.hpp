#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ctran/team/device_team.hpp"
#include "ctran/team/device_window.hpp"
#include "transport/nvl/symmetric_memory.hpp"

// What users' kernels are given of a window and of a team: addresses of include/torchcomms/device's
// plain data, in this rank's device memory.
namespace torch::comms::ctran {

// Threads: as the team. Kernels that use it are over before it goes.
class WindowHandle {
 public:
  // -1: as many as there can be.
  struct WindowHandleCounts {
    int signals = -1, counters = -1, barriers = 1;
  };
  // Local; each rank's waits are for its own. The device is current. Throws CommError without
  // context: kInvalidArgument, kOutOfRange for counts that cannot be; kVendor.
  WindowHandle(std::shared_ptr<const DeviceWindow> window, const WindowHandleCounts& counts,
               uint64_t limit_ns);

  const void* address() const noexcept;

  // A source of puts. Throws CommError(kResourceExhausted) where there are
  // torchcomms::device::kMostBuffers, kVendor.
  const void* add_buffer(void* at, size_t size_bytes);
  // False: there is no such one.
  bool remove_buffer(const void* handle);

 private:
  const std::shared_ptr<const DeviceWindow> window_;
  std::vector<bool> used_buffers_;  // buffers of the area
};

// Messages between pairs of ranks by users' kernels, through memory of a team.
class DeviceTransport {
 public:
  // Either all ranks have one, or none.
  struct DeviceTransportResult {
    std::unique_ptr<DeviceTransport> transport;
    std::string unavailable_reason;  // the same text on all ranks
  };
  // Collective. The device is current. Throws what `exchange` does; kVendor.
  static DeviceTransportResult create(const std::shared_ptr<DeviceTeam>& team, uint64_t limit_ns,
                                      const transport::nvl::AllGatherStrings& exchange);

  const void* address() const noexcept;
  size_t size_bytes() const noexcept { return memory_->size_bytes(); }

 private:
  DeviceTransport(std::shared_ptr<DeviceTeam> team,
                  std::unique_ptr<transport::nvl::SymmetricMemory> memory)
      : team_(std::move(team)), memory_(std::move(memory)) {}

  const std::shared_ptr<DeviceTeam> team_;  // whose words waits watch
  const std::unique_ptr<transport::nvl::SymmetricMemory> memory_;
};

}  // namespace torch::comms::ctran
