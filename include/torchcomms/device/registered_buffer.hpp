#pragma once

#include <torchcomms/device/types.hpp>

namespace torchcomms::device {

inline constexpr int kMaxNicsPerGpu = 2;

// A source of puts which was registered.
struct RegisteredBuffer {
  void* base_ptr;
  uint64_t size;  // bytes
  void* backend_window;
  struct {
    uint32_t values[kMaxNicsPerGpu];
    uint32_t size;  // 0: there is no network
  } lkey_per_device;
};

}  // namespace torchcomms::device
