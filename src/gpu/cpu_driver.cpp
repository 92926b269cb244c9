#include "gpu/cpu_driver.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "gpu/cpu_runtime.hpp"

// The driver functions for host memory. They return CUDA's error numbers. A handle is the
// descriptor of a memory file plus one; 0: no handle.
namespace torch::comms::gpu {
namespace {

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidDevice = 101, kNotSupported = 801;

int file_of(AllocationHandle handle) { return static_cast<int>(handle) - 1; }
AllocationHandle handle_of(int file) { return static_cast<AllocationHandle>(file) + 1; }
// NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
void* pointer(DevicePointer at) { return reinterpret_cast<void*>(at); }

// The mappings of this process, by address.
struct CpuDriverMapping {
  size_t size_bytes;
  AllocationHandle handle;  // must stay open while the mapping exists
};
class CpuDriverMappings {
 public:
  static CpuDriverMappings& here() {
    static auto* const all = new CpuDriverMappings;
    return *all;
  }
  void add(DevicePointer at, const CpuDriverMapping& mapping) {
    const std::lock_guard lock(mutex_);
    all_[at] = mapping;
  }
  void remove(DevicePointer at) {
    const std::lock_guard lock(mutex_);
    all_.erase(at);
  }
  // Returns the mapping that contains `at`, and sets `at` to its begin; handle 0: none.
  CpuDriverMapping of(DevicePointer& at) const {
    const std::lock_guard lock(mutex_);
    auto after = all_.upper_bound(at);
    if (after == all_.begin()) return {0, 0};
    const auto& [begin, mapping] = *--after;
    if (at - begin >= mapping.size_bytes) return {0, 0};
    at = begin;
    return mapping;
  }

 private:
  mutable std::mutex mutex_;
  std::map<DevicePointer, CpuDriverMapping> all_;
};

int init(unsigned) { return kSuccess; }
int error_text(int code, const char** text) {
  *text = code == kInvalidValue    ? "invalid argument"
          : code == kOutOfMemory   ? "out of memory"
          : code == kInvalidDevice ? "invalid device ordinal"
          : code == kNotSupported  ? "operation not supported"
                                   : "unknown error";
  return kSuccess;
}
int count_devices(int* count) {
  *count = 1;
  return kSuccess;
}
int get_uuid(DriverUuid* uuid, int device) {
  if (device != 0) return kInvalidDevice;
  constexpr char kName[] = "host memory";
  std::memcpy(uuid->bytes, kName, sizeof kName);
  return kSuccess;
}
int get_attribute(int* value, int, int device) {
  *value = 1;
  return device == 0 ? kSuccess : kInvalidDevice;
}
int can_access_peer(int* can, int device, int peer) {
  *can = 0;
  return device == 0 && peer == 0 ? kSuccess : kInvalidDevice;
}
int get_peer_attribute(int* value, int, int device, int peer) {
  return can_access_peer(value, device, peer);
}
int get_granularity(size_t* page, const MemoryProperties*, int) {
  *page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return kSuccess;
}

int create(AllocationHandle* handle, size_t size_bytes, const MemoryProperties* wanted,
           unsigned long long) {
  if (wanted->location.id != 0) return kInvalidDevice;
  const int file = ::memfd_create("torchcomms-device", MFD_CLOEXEC);
  if (file < 0) return kOutOfMemory;
  if (::ftruncate(file, static_cast<off_t>(size_bytes)) != 0) {
    ::close(file);
    return kOutOfMemory;
  }
  *handle = handle_of(file);
  return kSuccess;
}
int export_handle(void* descriptor, AllocationHandle handle, int type, unsigned long long) {
  if (type != kHandleTypePosixFd) return kInvalidValue;
  const int file = ::fcntl(file_of(handle), F_DUPFD_CLOEXEC, 0);
  std::memcpy(descriptor, &file, sizeof file);
  return file < 0 ? kInvalidValue : kSuccess;
}
int import_handle(AllocationHandle* handle, void* descriptor, int type) {
  if (type != kHandleTypePosixFd) return kInvalidValue;
  const int file =
      ::fcntl(static_cast<int>(reinterpret_cast<intptr_t>(descriptor)), F_DUPFD_CLOEXEC, 0);
  if (file < 0) return kInvalidValue;
  *handle = handle_of(file);
  return kSuccess;
}
int release(AllocationHandle handle) {
  return ::close(file_of(handle)) == 0 ? kSuccess : kInvalidValue;
}

int reserve(DevicePointer* at, size_t size_bytes, size_t, DevicePointer, unsigned long long) {
  void* const found =
      ::mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return kOutOfMemory;
  *at = reinterpret_cast<DevicePointer>(found);
  return kSuccess;
}
int free_addresses(DevicePointer at, size_t size_bytes) {
  return ::munmap(pointer(at), size_bytes) == 0 ? kSuccess : kInvalidValue;
}
int map(DevicePointer at, size_t size_bytes, size_t offset, AllocationHandle handle,
        unsigned long long) {
  struct stat found{};
  if (::fstat(file_of(handle), &found) != 0 ||
      static_cast<size_t>(found.st_size) < offset + size_bytes)
    return kInvalidValue;
  const void* const mapped = ::mmap(pointer(at), size_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED,
                                    file_of(handle), static_cast<off_t>(offset));
  if (mapped == MAP_FAILED) return kOutOfMemory;
  CpuDriverMappings::here().add(at, {size_bytes, handle});
  return kSuccess;
}
int unmap(DevicePointer at, size_t size_bytes) {
  CpuDriverMappings::here().remove(at);
  const void* const freed = ::mmap(pointer(at), size_bytes, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return freed == MAP_FAILED ? kInvalidValue : kSuccess;
}
int set_access(DevicePointer at, size_t size_bytes, const MemoryAccess* access, size_t count) {
  if (count != 1 || access->location.id != 0) return kInvalidDevice;
  return ::mprotect(pointer(at), size_bytes, PROT_READ | PROT_WRITE) == 0 ? kSuccess
                                                                          : kInvalidValue;
}
int retain(AllocationHandle* handle, void* at) {
  auto begin = reinterpret_cast<DevicePointer>(at);
  const auto mapping = CpuDriverMappings::here().of(begin);
  const int file = mapping.handle == 0 ? -1 : ::fcntl(file_of(mapping.handle), F_DUPFD_CLOEXEC, 0);
  if (file < 0) return kInvalidValue;
  *handle = handle_of(file);
  return kSuccess;
}
int get_range(DevicePointer* begin, size_t* size_bytes, DevicePointer at) {
  *begin = at;
  *size_bytes = CpuDriverMappings::here().of(*begin).size_bytes;
  return *size_bytes == 0 ? kInvalidValue : kSuccess;
}
// There is no IPC for host memory that is not a file: it belongs to its process.
int get_ipc(IpcHandle*, DevicePointer) { return kNotSupported; }
int open_ipc(DevicePointer*, IpcHandle, unsigned) { return kNotSupported; }
int get_name(char* name, int size_bytes, int) {
  constexpr std::string_view kName = "host memory";
  if (size_bytes <= static_cast<int>(kName.size())) return kInvalidValue;
  name[kName.copy(name, kName.size())] = '\0';
  return kSuccess;
}
int close_ipc(DevicePointer) { return kNotSupported; }
int set_bytes(DevicePointer at, unsigned char value, size_t size_bytes, NativeStream stream) {
  cpu_launch(stream, [=] { std::memset(pointer(at), value, size_bytes); });
  return kSuccess;
}

}  // namespace

const DriverTable& cpu_driver_table() noexcept {
  static const DriverTable table{
      .Init = init,
      .GetErrorString = error_text,
      .DeviceGetCount = count_devices,
      .DeviceGetName = get_name,
      .DeviceGetUuid_v2 = get_uuid,
      .DeviceGetAttribute = get_attribute,
      .DeviceCanAccessPeer = can_access_peer,
      .DeviceGetP2PAttribute = get_peer_attribute,
      .MemGetAllocationGranularity = get_granularity,
      .MemCreate = create,
      .MemExportToShareableHandle = export_handle,
      .MemImportFromShareableHandle = import_handle,
      .MemRelease = release,
      .MemAddressReserve = reserve,
      .MemAddressFree = free_addresses,
      .MemMap = map,
      .MemUnmap = unmap,
      .MemSetAccess = set_access,
      .MemRetainAllocationHandle = retain,
      .MemGetAddressRange_v2 = get_range,
      .IpcGetMemHandle = get_ipc,
      .IpcOpenMemHandle_v2 = open_ipc,
      .IpcCloseMemHandle = close_ipc,
      .MemsetD8Async = set_bytes,
  };
  return table;
}

}  // namespace torch::comms::gpu
