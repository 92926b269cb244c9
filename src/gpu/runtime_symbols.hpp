#pragma once

#include <cstddef>

// The C functions of a GPU runtime, by the name that CUDA and HIP share: cuda<Name> and hip<Name>.
// All handles are opaque pointers and all results are int, 0 for success, so that one list fits
// both.
namespace torch::comms::gpu {

using NativeStream = void*;  // null: the vendor's default stream
using NativeEvent = void*;
// Identifies the capture that records a stream's work into a graph.
using CaptureId = unsigned long long;  // 0: no capture

// SYMBOL(name, type)
//
// StreamGetCaptureInfo got more output parameters over time, always after the first three. An older
// library ignores the null arguments at the end.
#define TC_GPU_SYMBOLS(SYMBOL)                                                                    \
  SYMBOL(GetErrorString, const char*(int))                                                        \
  SYMBOL(GetLastError, int())                                                                     \
  SYMBOL(GetDeviceCount, int(int*))                                                               \
  SYMBOL(GetDevice, int(int*))                                                                    \
  SYMBOL(SetDevice, int(int))                                                                     \
  SYMBOL(DeviceGetStreamPriorityRange, int(int* least, int* greatest))                            \
  SYMBOL(StreamCreateWithPriority, int(NativeStream*, unsigned flags, int priority))              \
  SYMBOL(StreamDestroy, int(NativeStream))                                                        \
  SYMBOL(StreamSynchronize, int(NativeStream))                                                    \
  SYMBOL(StreamWaitEvent, int(NativeStream, NativeEvent, unsigned flags))                         \
  SYMBOL(StreamGetCaptureInfo,                                                                    \
         int(NativeStream, int* status, CaptureId* id, void*, void*, void*, void*))               \
  SYMBOL(ThreadExchangeStreamCaptureMode, int(int* mode))                                         \
  SYMBOL(LaunchHostFunc, int(NativeStream, void (*function)(void*), void* argument))              \
  SYMBOL(EventCreateWithFlags, int(NativeEvent*, unsigned flags))                                 \
  SYMBOL(EventDestroy, int(NativeEvent))                                                          \
  SYMBOL(EventRecord, int(NativeEvent, NativeStream))                                             \
  SYMBOL(EventQuery, int(NativeEvent))                                                            \
  SYMBOL(EventSynchronize, int(NativeEvent))                                                      \
  SYMBOL(MemcpyAsync, int(void* to, const void* from, size_t size_bytes, int kind, NativeStream)) \
  SYMBOL(HostAlloc, int(void**, size_t size_bytes, unsigned flags))                               \
  SYMBOL(FreeHost, int(void*))                                                                    \
  SYMBOL(MemGetInfo, int(size_t* free_bytes, size_t* total_bytes))

// The functions of a loaded GPU runtime.
struct RuntimeTable {
#define TC_GPU_FIELD(name, ...)       \
  using name##Function = __VA_ARGS__; \
  name##Function* name = nullptr;
  TC_GPU_SYMBOLS(TC_GPU_FIELD)
#undef TC_GPU_FIELD
};

// Values that CUDA and HIP share.
inline constexpr int kSuccess = 0;
inline constexpr int kNotReady = 600;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kCopyHostToDevice = 1;
inline constexpr int kCopyDeviceToHost = 2;
inline constexpr int kCopyDeviceToDevice = 3;

}  // namespace torch::comms::gpu
