#pragma once

#include "gpu/runtime_symbols.hpp"

namespace torch::comms::gpu {

// Driver functions that are called instead of the runtime functions of the same name. For those
// called in every operation the runtime takes 0.1 to 0.25 us longer. In a thread without a current
// device, most runtime functions select device 0. That takes half a gigabyte on it in each process
// that works on another device. Null: not available. On any result but success the runtime function
// is called, which also initializes the thread.
struct DriverEntryPoints {
  // Called in every operation.
  int (*EventRecord)(NativeEvent, NativeStream) = nullptr;
  int (*EventQuery)(NativeEvent) = nullptr;
  int (*StreamWaitEvent)(NativeStream, NativeEvent, unsigned flags) = nullptr;
  int (*StreamIsCapturing)(NativeStream, int* status) = nullptr;
  int (*CtxGetCurrent)(void**) = nullptr;
  // Called in threads without a current device.
  int (*ThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  int (*StreamSynchronize)(NativeStream) = nullptr;
  int (*StreamDestroy)(NativeStream) = nullptr;
  int (*EventDestroy)(NativeEvent) = nullptr;
  int (*FreeHost)(void*) = nullptr;
};

// Returns the entry points that the CUDA driver has.
DriverEntryPoints cuda_driver_entry_points();

}  // namespace torch::comms::gpu
