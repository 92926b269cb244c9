#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/protocol/device.cuh"
#include "ctran/kernels/protocol/layout.hpp"

// Kernels of a HostRing: post a command, wait for a command, poison an output.
namespace torch::comms::ctran::kernels {
namespace {

// Finds out whether this launch or an earlier one has to stop, and records why. For one thread.
class HostRingStopChecker {
 public:
  __device__ __forceinline__ HostRingStopChecker(const HostRingCall& call, uint64_t number)
      : call_(call), number_(number), start_ns_(now_ns()) {}

  __device__ __forceinline__ bool is_stopped() const {
    if (load_relaxed(&call_.control->stop) != 0) return true;
    const bool is_wanted =
        load_relaxed(&call_.control->abort) != 0 ||
        (call_.team_control != nullptr && load_relaxed(&call_.team_control->stop) != 0);
    if (is_wanted) stop(StopReason::kAborted);
    return is_wanted;
  }
  // Checks for a stop after a failed poll of host memory.
  __device__ __forceinline__ bool must_stop() {
    // The polled memory is the host's: each poll takes a microsecond by itself.
    constexpr uint32_t kLooks = 16;
    if (++looks_ % kLooks != 0) return false;
    if (is_stopped()) return true;
    if (call_.timeout_ns == 0 || now_ns() - start_ns_ <= call_.timeout_ns) return false;
    stop(StopReason::kTimeout);
    return true;
  }

 private:
  __device__ __noinline__ void stop(StopReason why) const {
    call_.control->waited_for = -1;
    call_.control->launch = number_;
    __threadfence_system();
    *const_cast<volatile uint32_t*>(&call_.control->stop) = static_cast<uint32_t>(why);
  }

  const HostRingCall& call_;
  const uint64_t number_, start_ns_;
  uint32_t looks_ = 0;
};

__device__ __forceinline__ bool wait_until_done(const HostRingCall& call,
                                                HostRingStopChecker& stop_checker,
                                                uint64_t number) {
  while (!has_reached(load_acquire(&call.ring->done), number))
    if (stop_checker.must_stop()) return false;
  return true;
}

// Posts a command. A host thread that sees the command's number also sees what the stream did
// before, including copies into host memory.
__global__ void PostHostCommand(const __grid_constant__ HostRingCall call) {
  follow_previous();
  HostRing& ring = *call.ring;
  const uint64_t number = load_relaxed(&ring.posted) + 1;
  HostRingStopChecker stop_checker(call, number);
  if (stop_checker.is_stopped() || !wait_until_done(call, stop_checker, number - kHostRingSlots))
    return;
  HostCommand& command = ring.commands[number % kHostRingSlots];
#pragma unroll
  for (size_t i = 0; i < kCommandWords; ++i) store_relaxed(&command.words[i], call.words[i]);
  fence_release();
  store_relaxed(&command.number, number);
  store_relaxed(&ring.posted, number);
}

__global__ void AwaitHostCommand(const __grid_constant__ HostRingCall call) {
  follow_previous();
  const uint64_t number = load_relaxed(&call.ring->awaited) + 1;
  HostRingStopChecker stop_checker(call, number);
  if (stop_checker.is_stopped() || !wait_until_done(call, stop_checker, number)) return;
  store_relaxed(&call.ring->awaited, number);
  fence_release();
}

__global__ void __launch_bounds__(kMostThreads, 1)
    PoisonOutput(const __grid_constant__ HostRingCall call) {
  follow_previous();
  const bool is_whole = threadIdx.x != 0 ||
                        !HostRingStopChecker(call, load_relaxed(&call.ring->awaited)).is_stopped();
  if (__syncthreads_and(is_whole) != 0 || call.nan == 0) return;
  char* output = static_cast<char*>(call.output);
  for (size_t i = threadIdx.x; i < call.output_bytes; i += blockDim.x)
    output[i] = static_cast<char>(call.nan >> (i % 8 * 8));
}

}  // namespace

const void* find_post() { return reinterpret_cast<const void*>(&PostHostCommand); }
const void* find_wait_for_command() { return reinterpret_cast<const void*>(&AwaitHostCommand); }
const void* find_poison_output() { return reinterpret_cast<const void*>(&PoisonOutput); }

}  // namespace torch::comms::ctran::kernels
