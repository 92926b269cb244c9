#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/runtime_symbols.hpp"

// The C functions of the CUDA driver for memory that other processes can map. The driver's names
// have "cu" in front. Types are the driver's, with handles as plain numbers; results are int, 0 for
// success.
namespace torch::comms::gpu {

using DevicePointer = unsigned long long;
using AllocationHandle = unsigned long long;

struct DriverUuid {
  unsigned char bytes[16];
};
struct MemoryLocation {
  int type;
  int id;
};
// The properties of an allocation.
struct MemoryProperties {
  int type;
  int handle_types;
  MemoryLocation location;
  void* os_data;
  unsigned char compression, direct_rdma;
  unsigned short usage;
  unsigned char reserved[4];
};
static_assert(sizeof(MemoryProperties) == 32);
// A handle for other processes to memory that was allocated without a shareable handle ("legacy"
// IPC).
struct IpcHandle {
  unsigned char bytes[64];
};
struct MemoryAccess {
  MemoryLocation location;
  int rights;
};
static_assert(sizeof(MemoryAccess) == 12);

// SYMBOL(name, type)
#define TC_GPU_DRIVER_SYMBOLS(SYMBOL)                                                             \
  SYMBOL(Init, int(unsigned flags))                                                               \
  SYMBOL(GetErrorString, int(int, const char**))                                                  \
  SYMBOL(DeviceGetCount, int(int*))                                                               \
  SYMBOL(DeviceGetName, int(char* name, int size_bytes, int device))                              \
  SYMBOL(DeviceGetUuid_v2, int(DriverUuid*, int device))                                          \
  SYMBOL(DeviceGetAttribute, int(int*, int attribute, int device))                                \
  SYMBOL(DeviceCanAccessPeer, int(int*, int device, int peer))                                    \
  SYMBOL(DeviceGetP2PAttribute, int(int*, int attribute, int device, int peer))                   \
  SYMBOL(MemGetAllocationGranularity, int(size_t*, const MemoryProperties*, int option))          \
  SYMBOL(MemCreate, int(AllocationHandle*, size_t size_bytes, const MemoryProperties*,            \
                        unsigned long long flags))                                                \
  SYMBOL(MemExportToShareableHandle,                                                              \
         int(void* os_handle, AllocationHandle, int type, unsigned long long flags))              \
  SYMBOL(MemImportFromShareableHandle, int(AllocationHandle*, void* os_handle, int type))         \
  SYMBOL(MemRelease, int(AllocationHandle))                                                       \
  SYMBOL(MemAddressReserve, int(DevicePointer*, size_t size_bytes, size_t alignment,              \
                                DevicePointer wanted, unsigned long long flags))                  \
  SYMBOL(MemAddressFree, int(DevicePointer, size_t size_bytes))                                   \
  SYMBOL(MemMap, int(DevicePointer, size_t size_bytes, size_t offset, AllocationHandle,           \
                     unsigned long long flags))                                                   \
  SYMBOL(MemUnmap, int(DevicePointer, size_t size_bytes))                                         \
  SYMBOL(MemSetAccess, int(DevicePointer, size_t size_bytes, const MemoryAccess*, size_t count))  \
  SYMBOL(MemRetainAllocationHandle, int(AllocationHandle*, void* at))                             \
  SYMBOL(MemGetAddressRange_v2, int(DevicePointer * begin, size_t* size_bytes, DevicePointer at)) \
  SYMBOL(IpcGetMemHandle, int(IpcHandle*, DevicePointer at))                                      \
  SYMBOL(IpcOpenMemHandle_v2, int(DevicePointer*, IpcHandle, unsigned flags))                     \
  SYMBOL(IpcCloseMemHandle, int(DevicePointer))                                                   \
  SYMBOL(MemsetD8Async, int(DevicePointer, unsigned char value, size_t size_bytes, NativeStream))

// The functions of a loaded GPU driver.
struct DriverTable {
#define TC_GPU_DRIVER_FIELD(name, ...) \
  using name##Function = __VA_ARGS__;  \
  name##Function* name = nullptr;
  TC_GPU_DRIVER_SYMBOLS(TC_GPU_DRIVER_FIELD)
#undef TC_GPU_DRIVER_FIELD
};

inline constexpr int kMemoryPinned = 1;            // MemoryProperties::type
inline constexpr int kHandleTypePosixFd = 1;       // a file descriptor
inline constexpr int kMemoryOnDevice = 1;          // MemoryLocation::type
inline constexpr int kMemoryReadWrite = 3;         // MemoryAccess::rights
inline constexpr int kNativeAtomicsSupported = 3;  // between two devices, as NVLink has
inline constexpr unsigned kLazyPeerAccess = 1;     // a flag of IpcOpenMemHandle
inline constexpr int kGranularityMinimum = 0;
inline constexpr int kVirtualMemoryManagementSupported = 102;  // attributes of devices
inline constexpr int kHandleTypePosixFdSupported = 103;

}  // namespace torch::comms::gpu
