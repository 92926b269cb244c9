#pragma once

#include <torchcomms/device/types.hpp>

namespace torchcomms::device {

inline constexpr int kMaxNicsPerGpu = 2;

// A registered buffer, from which kernels put data.
struct RegisteredBuffer {
  void* base_ptr;
  uint64_t size;  // bytes
  void* backend_window;
  struct {
    uint32_t values[kMaxNicsPerGpu];
    uint32_t size;  // number of entries; 0: no network
  } lkey_per_device;
};

}  // namespace torchcomms::device
