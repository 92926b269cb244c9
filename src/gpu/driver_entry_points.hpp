#pragma once

#include "gpu/runtime_symbols.hpp"

namespace torch::comms::gpu {

// The driver's own functions, which do what the runtime's of that name do. Of those that are asked
// in every operation the runtime's take 0.1 to 0.25 us longer. And in a thread that has no device
// yet most of the runtime's choose the first one: half a gigabyte of it, in each process that works
// on another. Null: none; any result but success leaves the answer to the runtime, which also makes
// a thread ready for them.
struct DriverEntryPoints {
  // In every operation.
  int (*EventRecord)(NativeEvent, NativeStream) = nullptr;
  int (*EventQuery)(NativeEvent) = nullptr;
  int (*StreamWaitEvent)(NativeStream, NativeEvent, unsigned flags) = nullptr;
  int (*StreamIsCapturing)(NativeStream, int* status) = nullptr;
  int (*CtxGetCurrent)(void**) = nullptr;
  // In threads without a device.
  int (*ThreadExchangeStreamCaptureMode)(int* mode) = nullptr;
  int (*StreamSynchronize)(NativeStream) = nullptr;
  int (*StreamDestroy)(NativeStream) = nullptr;
  int (*EventDestroy)(NativeEvent) = nullptr;
  int (*FreeHost)(void*) = nullptr;
};

// Those of CUDA's driver that there are.
DriverEntryPoints cuda_driver_entry_points();

}  // namespace torch::comms::gpu
