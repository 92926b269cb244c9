#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <torchcomms/base/export.hpp>

#include "gpu/event_pool.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms {

// What torch works on in this thread, on a device with an index, or on host memory.
TC_API gpu::NativeStream current_stream_of(const at::Device& device);
// Waits for `stream`, of the current device, unless it is captured: before memory of ours goes that
// what was enqueued there may use. What is unmapped is not waited for, as cudaFree() would.
TC_API void synchronize_stream(const gpu::Runtime& runtime, gpu::NativeStream stream) noexcept;
// The same of the current stream of `device`, whichever device is current.
TC_API void synchronize_torch_stream(const gpu::Runtime& runtime,
                                     const at::Device& device) noexcept;

// Makes a device current for a scope. Threads of the program go back to theirs as after torch's own
// operations.
class TC_API TorchDeviceGuard {
 public:
  // `device` has an index. Throws CommError(kVendor).
  TorchDeviceGuard(const gpu::Runtime& runtime, const at::Device& device);

 private:
  std::optional<gpu::DeviceGuard> guard_;
  std::optional<c10::DeviceGuard> initial_guard_;  // in a thread that has none yet
};

// Where a communicator's tensors are: a torch device, the runtime that serves it, the stream that
// torch works on there, and one of the communicator's own.
//
// A device of type CPU has the runtime for host memory, whose streams are threads: see
// gpu/cpu_runtime.hpp.
class TC_API CommDevice {
 public:
  // `at` has an index, unless it is of type CPU. Throws CommError(kVendor).
  CommDevice(std::shared_ptr<const gpu::Runtime> runtime, at::Device at, bool high_priority_stream,
             size_t most_events);
  ~CommDevice();
  CommDevice(const CommDevice&) = delete;
  CommDevice& operator=(const CommDevice&) = delete;

  const at::Device& torch_device() const noexcept { return device_; }
  const std::shared_ptr<const gpu::Runtime>& shared_runtime() const noexcept { return runtime_; }
  const gpu::Runtime& runtime() const noexcept { return *runtime_; }
  gpu::EventPool& events() const noexcept { return *events_; }

  // The communicator's own; with another priority than it was made with a second one, which is made
  // at its first use. Of one thread at a time. Throws CommError(kVendor).
  gpu::NativeStream own_stream(std::optional<bool> high_priority = {}) {
    return high_priority.value_or(high_priority_) == high_priority_ ? own_stream_ : second_stream();
  }
  // What torch works on in this thread.
  gpu::NativeStream current_stream() const { return current_stream_of(device_); }
  // True where that is the calling thread itself: then results are there when a call returns.
  bool is_run_by_host(gpu::NativeStream current) const {
    return device_.is_cpu() && current == nullptr;
  }
  bool is_run_by_host() const { return device_.is_cpu() && is_run_by_host(current_stream()); }

  // The device current, for calls that put something on a stream.
  class TC_API CurrentDeviceGuard {
   public:
    explicit CurrentDeviceGuard(const CommDevice& device) {
      if (!device.is_current()) guard_.emplace(*device.runtime_, device.device_);
    }

   private:
    std::optional<TorchDeviceGuard> guard_;
  };
  // The same for any call of the runtime: no capture of others is disturbed.
  class TC_API DeviceCallGuard {
   public:
    explicit DeviceCallGuard(const CommDevice& device)
        : mode_(device.runtime()), current_(device) {}

   private:
    gpu::CaptureModeGuard mode_;
    CurrentDeviceGuard current_;
  };

 private:
  // False also where it is not known.
  bool is_current() const {
    if (device_.is_cpu()) return true;
    const auto* const context = runtime_->context();
    if (context == nullptr) return false;
    return context == seen_context_.load(std::memory_order_relaxed) || is_current_context(context);
  }
  bool is_current_context(const void* context) const;
  gpu::NativeStream second_stream();

  const at::Device device_;
  mutable std::atomic<const void*> seen_context_{nullptr};  // in which the device was seen current
  const std::shared_ptr<const gpu::Runtime> runtime_;
  std::shared_ptr<gpu::EventPool> events_;
  const bool high_priority_;
  gpu::NativeStream own_stream_ = nullptr;     // of that priority
  gpu::NativeStream second_stream_ = nullptr;  // of the other; null before its first use
};

// `wanted` with an index: without one it is chosen by `rank`, so that the ranks of a host share its
// devices out; without a rank it is the current one. Throws CommError without context:
// kBackendUnavailable where there is no device, kInvalidArgument for an index that is too high.
// `backend` is for the texts.
TC_API at::Device resolve_device(const gpu::Runtime& runtime, at::Device wanted,
                                 std::optional<int> rank, const std::string& backend);

// The row of the runtime that torch's devices of type cuda have: HIP's where torch is built for it.
TC_API const gpu::RuntimeRow& torch_runtime_row();

}  // namespace torch::comms
