#pragma once

#include <atomic>
#include <cstddef>

// Puts kernels on streams, and knows the devices that they run on. Results are CUDA's codes.
namespace torch::comms::ctran::kernels {

inline constexpr int kMostDevices = 64;

struct LaunchDevice {
  // Whether a kernel may be set up before the one before it is over, and processors have a copy
  // unit: since Hopper.
  std::atomic<bool> is_hopper{false};
  std::atomic<bool> is_unsupported{false};  // it is of another architecture
  std::atomic<int> multiprocessors{1};
};
// By number; all from kMostDevices on are one.
LaunchDevice& device_of(int index);
const LaunchDevice& this_device();  // the one that is current

int enqueue(const void* kernel, void* params, int blocks, int threads, void* stream,
            size_t shared_bytes = 0);

}  // namespace torch::comms::ctran::kernels
