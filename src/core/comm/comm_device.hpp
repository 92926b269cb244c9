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

// Returns: torch's current stream in this thread, on a device with an index or in host memory.
TC_API gpu::NativeStream current_stream_of(const at::Device& device);
// Waits for `stream`, which belongs to the current device, unless it is being captured. Call it
// before freeing memory that work on the stream may use. Unmapping memory, unlike cudaFree(), does
// not wait for the device.
TC_API void synchronize_stream(const gpu::Runtime& runtime, gpu::NativeStream stream) noexcept;
// Waits for torch's current stream of `device`, whichever device is current.
TC_API void synchronize_torch_stream(const gpu::Runtime& runtime,
                                     const at::Device& device) noexcept;

// Makes a device current for a scope. Afterwards the thread has its previous device, as after
// torch's own operations.
class TC_API TorchDeviceGuard {
 public:
  // `device` must have an index.
  // Throws: CommError(kVendor).
  TorchDeviceGuard(const gpu::Runtime& runtime, const at::Device& device);

 private:
  std::optional<gpu::DeviceGuard> guard_;
  std::optional<c10::DeviceGuard> initial_guard_;  // for a thread that has no current device yet
};

// The device of a communicator: the torch device, its runtime, torch's current stream, and a stream
// of the communicator.
//
// A device of type CPU uses the runtime for host memory, whose streams are threads: see
// gpu/cpu_runtime.hpp.
class TC_API CommDevice {
 public:
  // `at` must have an index, unless its type is CPU.
  // Throws: CommError(kVendor).
  CommDevice(std::shared_ptr<const gpu::Runtime> runtime, at::Device at, bool high_priority_stream,
             size_t most_events);
  ~CommDevice();
  CommDevice(const CommDevice&) = delete;
  CommDevice& operator=(const CommDevice&) = delete;

  const at::Device& torch_device() const noexcept { return device_; }
  const std::shared_ptr<const gpu::Runtime>& shared_runtime() const noexcept { return runtime_; }
  const gpu::Runtime& runtime() const noexcept { return *runtime_; }
  gpu::EventPool& events() const noexcept { return *events_; }

  // Returns: the communicator's stream with this priority. The stream of the other priority is
  // created on first use.
  // Throws: CommError(kVendor).
  // Threads: one at a time.
  gpu::NativeStream own_stream(std::optional<bool> high_priority = {}) {
    return high_priority.value_or(high_priority_) == high_priority_ ? own_stream_ : second_stream();
  }
  // Returns: torch's current stream in this thread.
  gpu::NativeStream current_stream() const { return current_stream_of(device_); }
  // Returns: true if the calling thread itself executes work on `current`, so that results exist
  // when a call returns.
  bool is_run_by_host(gpu::NativeStream current) const {
    return device_.is_cpu() && current == nullptr;
  }
  bool is_run_by_host() const { return device_.is_cpu() && is_run_by_host(current_stream()); }

  // Makes the device current, for calls that enqueue work on a stream.
  class TC_API CurrentDeviceGuard {
   public:
    explicit CurrentDeviceGuard(const CommDevice& device) {
      if (!device.is_current()) guard_.emplace(*device.runtime_, device.device_);
    }

   private:
    std::optional<TorchDeviceGuard> guard_;
  };
  // Makes the device current for any runtime call, and does not disturb captures of other threads.
  class TC_API DeviceCallGuard {
   public:
    explicit DeviceCallGuard(const CommDevice& device)
        : mode_(device.runtime()), current_(device) {}

   private:
    gpu::CaptureModeGuard mode_;
    CurrentDeviceGuard current_;
  };

 private:
  // Returns: true if the device is known to be current; false also if this is not known.
  bool is_current() const {
    if (device_.is_cpu()) return true;
    const auto* const context = runtime_->context();
    if (context == nullptr) return false;
    return context == seen_context_.load(std::memory_order_relaxed) || is_current_context(context);
  }
  bool is_current_context(const void* context) const;
  gpu::NativeStream second_stream();

  const at::Device device_;
  mutable std::atomic<const void*> seen_context_{
      nullptr};  // the context in which the device was last seen current
  const std::shared_ptr<const gpu::Runtime> runtime_;
  std::shared_ptr<gpu::EventPool> events_;
  const bool high_priority_;
  gpu::NativeStream own_stream_ = nullptr;     // with priority high_priority_
  gpu::NativeStream second_stream_ = nullptr;  // with the other priority; null before its first use
};

// Chooses the index of a device. Without an index, `rank` selects one, so that the ranks of a host
// share its devices; without a rank it is the current device. `backend` is for error texts.
// Returns: `wanted` with an index.
// Throws: CommError without context: kBackendUnavailable if there is no device, kInvalidArgument
// for an index that is too high.
TC_API at::Device resolve_device(const gpu::Runtime& runtime, at::Device wanted,
                                 std::optional<int> rank, const std::string& backend);

// Returns: the runtime behind torch's devices of type cuda: HIP if torch is built for it.
TC_API const gpu::RuntimeRow& torch_runtime_row();

}  // namespace torch::comms
