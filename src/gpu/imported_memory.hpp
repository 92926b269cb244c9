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

// What another process needs, to map memory of a device that this one has. Plain memory, which
// crosses between processes beside a descriptor.
struct MemoryExportInfo {
  IpcHandle ipc = {};             // where there is no descriptor
  uint64_t has_descriptor = 0;    // 1: there is one
  uint64_t allocation_bytes = 0;  // of the whole allocation
  uint64_t offset = 0;            // of the memory in it
  uint64_t size_bytes = 0;        // of the memory
};
struct ExportedMemory {
  base::FileDescriptor descriptor;
  MemoryExportInfo info;
};

// Of memory that was allocated before, by whomever: within one allocation that has a shareable
// handle, or within one of cudaMalloc. No bytes need nothing. Throws CommError(kUnsupported),
// without context, saying which memory can be mapped; kVendor.
//
// Memory with a handle lives on where it is mapped when its owner frees it; other memory must not
// be freed before.
TC_API ExportedMemory export_memory(const std::shared_ptr<const Driver>& driver, const void* at,
                                    size_t size_bytes);

// Such memory of another process, mapped here for kernels on `device`, which is current; it may go
// on any thread. Of this process too where it has a handle.
class TC_API ImportedMemory {
 public:
  ImportedMemory(const std::shared_ptr<const Runtime>& runtime,
                 const std::shared_ptr<const Driver>& driver, int device,
                 const base::FileDescriptor& descriptor, const MemoryExportInfo& note);
  ~ImportedMemory();
  ImportedMemory(const ImportedMemory&) = delete;
  ImportedMemory& operator=(const ImportedMemory&) = delete;

  void* at() const noexcept { return at_; }  // null where there are no bytes
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
