#include "gpu/imported_memory.hpp"

#include <string>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"

namespace torch::comms::gpu {
namespace {

[[noreturn]] void refuse(const std::string& why) {
  throw CommError(Errc::kUnsupported,
                  "its memory cannot be mapped by other processes (" + why +
                      "); use memory of get_mem_allocator() or window_allocate()");
}

}  // namespace

ExportedMemory export_memory(const std::shared_ptr<const Driver>& driver, const void* at,
                             size_t size_bytes) {
  ExportedMemory result;
  result.info.size_bytes = size_bytes;
  if (size_bytes == 0) return result;
  const auto& table = driver->table();
  const auto pointer = reinterpret_cast<DevicePointer>(at);
  DevicePointer begin = 0;
  size_t allocation_bytes = 0;
  if (table.MemGetAddressRange_v2(&begin, &allocation_bytes, pointer) != kSuccess)
    refuse("the address is not device memory");
  result.info.allocation_bytes = allocation_bytes;
  result.info.offset = pointer - begin;
  if (allocation_bytes - result.info.offset < size_bytes)
    refuse("the range is larger than one allocation, as with expandable segments");
  AllocationHandle handle = 0;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
  if (table.MemRetainAllocationHandle(&handle, reinterpret_cast<void*>(begin)) == kSuccess) {
    int descriptor = -1;
    const int code = table.MemExportToShareableHandle(&descriptor, handle, kHandleTypePosixFd, 0);
    driver->log_failure(table.MemRelease(handle), "MemRelease");
    if (code != kSuccess) refuse("the memory was allocated without a shareable handle");
    result.descriptor = base::FileDescriptor(descriptor);
    result.info.has_descriptor = 1;
    return result;
  }
  if (table.IpcGetMemHandle(&result.info.ipc, begin) != kSuccess)
    refuse("the memory has no shareable handle and is not of cudaMalloc");
  return result;
}

ImportedMemory::ImportedMemory(const std::shared_ptr<const Runtime>& runtime,
                               const std::shared_ptr<const Driver>& driver, int device,
                               const base::FileDescriptor& descriptor, const MemoryExportInfo& note)
    : runtime_(runtime), driver_(driver), device_(device), size_bytes_(note.size_bytes) {
  if (size_bytes_ == 0) return;
  if (note.offset > note.allocation_bytes || note.size_bytes > note.allocation_bytes - note.offset)
    throw CommError(Errc::kSystem, "cannot map GPU memory of a peer process: it described " +
                                       std::to_string(note.size_bytes) + " bytes at offset " +
                                       std::to_string(note.offset) + " in an allocation of " +
                                       std::to_string(note.allocation_bytes) +
                                       " bytes. The ranks probably run different torchcomms "
                                       "versions; otherwise please report this");
  char* begin = nullptr;
  if (note.has_descriptor != 0) {
    mapped_.emplace(ShareableMemory::import(driver, device, descriptor, note.allocation_bytes));
    begin = static_cast<char*>(mapped_->at());
  } else {
    driver->check(driver->table().IpcOpenMemHandle_v2(&opened_, note.ipc, kLazyPeerAccess),
                  "IpcOpenMemHandle");
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
    begin = reinterpret_cast<char*>(opened_);
  }
  at_ = begin + note.offset;
}

ImportedMemory::~ImportedMemory() {
  if (opened_ == 0) return;
  try {
    const DeviceGuard current(*runtime_, device_);  // the thread may have none
    driver_->log_failure(driver_->table().IpcCloseMemHandle(opened_), "IpcCloseMemHandle");
  } catch (const CommError& e) {
    base::log(base::LogLevel::kWarning,
              std::string("cannot unmap GPU memory of a peer process: ") + e.what());
  }
}

}  // namespace torch::comms::gpu
