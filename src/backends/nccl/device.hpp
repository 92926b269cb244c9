#pragma once

#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "nccl/table.hpp"
#include "gpu/event_pool.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::nccl {

// Where a communicator's tensors are: a torch device, the runtime that serves it, the stream that
// torch works on there, and one of the communicator's own. On a library for host memory the
// device is cpu.
class Device {
 public:
  // Resolves a device without an index by `rank`, and makes it current. Throws CommError without
  // context: kUnsupported for a device that the library does not work on, kBackendUnavailable for
  // one that is not there.
  Device(const Table& library, at::Device wanted, int rank);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const at::Device& torch_device() const noexcept { return device_; }
  const gpu::Runtime& runtime() const noexcept { return *runtime_; }
  gpu::EventPool& events() const noexcept { return *events_; }

  void open(bool high_priority_stream, size_t most_events);
  gpu::NativeStream own_stream() const noexcept { return own_; }
  // What torch works on in this thread.
  gpu::NativeStream current_stream() const;
  // True where that is the calling thread itself: then results are there when a call returns.
  bool host_runs() const { return is_cpu() && current_stream() == nullptr; }
  bool is_cpu() const noexcept { return device_.is_cpu(); }

  // For calls of the runtime: the device current, and no capture of others disturbed.
  class Scope {
   public:
    explicit Scope(const Device& device);

   private:
    gpu::CaptureModeGuard mode_;
    std::optional<gpu::DeviceGuard> guard_;
  };

 private:
  at::Device device_{at::kCPU};
  std::shared_ptr<const gpu::Runtime> runtime_;
  std::shared_ptr<gpu::EventPool> events_;
  gpu::NativeStream own_ = nullptr;
};

}  // namespace torch::comms::nccl
