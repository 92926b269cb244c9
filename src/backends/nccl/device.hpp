#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "gpu/event_pool.hpp"
#include "gpu/runtime.hpp"
#include "nccl/table.hpp"

namespace torch::comms::nccl {

// The type of device that a vendor's tensors are on, where its library has not said that it works
// on host memory.
at::DeviceType device_type_of(const Vendor& vendor);

// The runtime of its devices, bound at first use. Throws CommError(kBackendUnavailable).
std::shared_ptr<const gpu::Runtime> runtime_of(const Vendor& vendor);

// Where a communicator's tensors are: a torch device, the runtime that serves it, the stream that
// torch works on there, and one of the communicator's own.
class Device {
 public:
  // Resolves a device without an index by `rank`, without one to the current device, and makes it
  // current. Throws CommError without
  // context: kUnsupported for a device that the library does not work on, kBackendUnavailable for
  // one that is not there.
  static std::shared_ptr<Device> open(const Table& library, at::Device wanted,
                                      std::optional<int> rank, bool high_priority_stream,
                                      size_t most_events);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // What makes it current in a thread that has not seen it.
  static std::function<void()> enter(std::shared_ptr<const Device> device);

  const at::Device& torch_device() const noexcept { return device_; }
  const gpu::Runtime& runtime() const noexcept { return *runtime_; }
  gpu::EventPool& events() const noexcept { return *events_; }

  gpu::NativeStream own_stream() const noexcept { return own_; }
  // What torch works on in this thread.
  gpu::NativeStream current_stream() const;
  // True where that is the calling thread itself: then results are there when a call returns.
  bool host_runs() const { return device_.is_cpu() && current_stream() == nullptr; }

  // For calls of the runtime: the device current, and no capture of others disturbed.
  class Scope {
   public:
    explicit Scope(const Device& device);

   private:
    gpu::CaptureModeGuard mode_;
    std::optional<gpu::DeviceGuard> guard_;
  };

 private:
  Device(at::Device device, std::shared_ptr<const gpu::Runtime> runtime)
      : device_(device), runtime_(std::move(runtime)) {}

  const at::Device device_;
  const std::shared_ptr<const gpu::Runtime> runtime_;
  std::shared_ptr<gpu::EventPool> events_;
  gpu::NativeStream own_ = nullptr;
};

}  // namespace torch::comms::nccl
