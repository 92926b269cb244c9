#pragma once

#include <atomic>
#include <cstddef>

// Enqueues kernels on streams, and keeps facts about the devices. Results are CUDA error codes.
namespace torch::comms::ctran::kernels {

inline constexpr int kMostDevices = 64;

struct LaunchDevice {
  // Hopper or later: a kernel may be set up before the previous one has ended, and SMs have a TMA
  // unit.
  std::atomic<bool> is_hopper{false};
  std::atomic<bool> is_unsupported{false};  // the library has no code for its architecture
  std::atomic<int> multiprocessors{1};
};
// Returns the facts of device `index`. All devices from kMostDevices on share one entry.
LaunchDevice& device_of(int index);
const LaunchDevice& this_device();  // the current device

int enqueue(const void* kernel, void* params, int blocks, int threads, void* stream,
            size_t shared_bytes = 0);

}  // namespace torch::comms::ctran::kernels
