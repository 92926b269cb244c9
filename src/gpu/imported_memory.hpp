#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "gpu/driver.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// What another process needs besides a descriptor to map device memory of this process. The struct
// is trivially copyable and is sent to that process.
struct MemoryExportInfo {
  IpcHandle ipc = {};             // used if there is no descriptor
  uint64_t has_descriptor = 0;    // 1: the memory has a shareable descriptor
  uint64_t allocation_bytes = 0;  // of the whole allocation
  uint64_t offset = 0;            // of the memory in its allocation
  uint64_t size_bytes = 0;        // of the memory
};
// Exported memory: its description, and its descriptor if it has one.
struct ExportedMemory {
  base::FileDescriptor descriptor;
  MemoryExportInfo info;
};

// Exports existing device memory. It must lie within one allocation that has a shareable handle, or
// within one of cudaMalloc. Memory of 0 bytes needs neither.
//
// Throws: CommError(kUnsupported) without context, which says what memory can be mapped; kVendor.
// Lifetime: memory with a shareable handle stays valid where it is mapped when its owner frees it.
// Other memory must not be freed before all peers have unmapped it.
TC_API ExportedMemory export_memory(const std::shared_ptr<const Driver>& driver, const void* at,
                                    size_t size_bytes);

// Memory of another process, mapped for kernels on `device`, which must be current. Memory with a
// descriptor may also be of this process.
//
// Threads: it may be destroyed on any thread.
class TC_API ImportedMemory {
 public:
  ImportedMemory(const std::shared_ptr<const Runtime>& runtime,
                 const std::shared_ptr<const Driver>& driver, int device,
                 const base::FileDescriptor& descriptor, const MemoryExportInfo& note);
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  void* at() const noexcept { return at_; }  // null for 0 bytes
  size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  const std::shared_ptr<const Runtime> runtime_;
  const std::shared_ptr<const Driver> driver_;
  const int device_;
  std::optional<ShareableMemory> mapped_;
  DevicePointer opened_ = 0;
  void* at_ = nullptr;
  size_t size_bytes_;
};

}  // namespace torch::comms::gpu
