#pragma once

#include "gpu/symbols.hpp"

namespace torch::comms::gpu {

// The driver's own functions for what is asked in every operation: they do what the runtime's of
// that name do, of which each takes 0.1 to 0.25 us longer. Null: none; any result but success
// leaves the answer to the runtime, which also makes a thread ready for them.
struct Shortcuts {
  int (*EventRecord)(NativeEvent, NativeStream) = nullptr;
  int (*EventQuery)(NativeEvent) = nullptr;
  int (*StreamWaitEvent)(NativeStream, NativeEvent, unsigned flags) = nullptr;
  int (*StreamIsCapturing)(NativeStream, int* status) = nullptr;
  int (*CtxGetCurrent)(void**) = nullptr;
};

// Those of CUDA's driver that there are.
Shortcuts cuda_shortcuts();

}  // namespace torch::comms::gpu
