#include "gpu/driver.hpp"

#include <array>
#include <cstring>
#include <mutex>
#include <string>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "gpu/cpu_driver.hpp"
#include "gpu/cuda_driver.hpp"
#include "gpu/cuda_library.hpp"
#include "gpu/nvml.hpp"

namespace torch::comms::gpu {
namespace {

constexpr int kNoMemory = 2;

MemoryProperties properties_on(int device) {
  MemoryProperties wanted{};
  wanted.type = kMemoryPinned;
  wanted.handle_types = kHandleTypePosixFd;
  wanted.location = {kMemoryOnDevice, device};
  return wanted;
}

DriverTable bind_cuda() {
  const auto bind = [](const char* name) {
    std::string why;
    void* const address = cuda_driver_function(name, why);
    if (address == nullptr) throw CommError(Errc::kBackendUnavailable, why);
    return address;
  };
  DriverTable table;
#define TC_GPU_BIND(name, ...) \
  table.name = reinterpret_cast<DriverTable::name##Function*>(bind(#name));
  TC_GPU_DRIVER_SYMBOLS(TC_GPU_BIND)
#undef TC_GPU_BIND
  return table;
}

}  // namespace

bool operator==(const DriverUuid& a, const DriverUuid& b) noexcept {
  return std::memcmp(a.bytes, b.bytes, sizeof a.bytes) == 0;
}

std::shared_ptr<const Driver> Driver::of(const Runtime& runtime) {
  if (runtime.name() == "cpu") {
    static const auto host = std::make_shared<const Driver>("cpu", cpu_driver_table());
    return host;
  }
  if (runtime.name() != kCuda.name)
    throw CommError(Errc::kBackendUnavailable, "devices of the " + std::string(runtime.name()) +
                                                   " runtime have no supported driver API");
  static std::mutex mutex;
  static std::shared_ptr<const Driver> cuda;
  const std::lock_guard lock(mutex);
  if (!cuda) {
    auto created = std::make_shared<const Driver>("cuda", bind_cuda(), are_connected_by_nvlink);
    created->check(created->table_.Init(0), "Init");
    cuda = std::move(created);
  }
  return cuda;
}

std::string Driver::format_error(int code, const char* call) const {
  const char* text = nullptr;
  if (table_.GetErrorString(code, &text) != kSuccess || text == nullptr) text = "unknown error";
  return std::string(name_) + " driver, " + call + ": " + text + " (" + std::to_string(code) + ")";
}

void Driver::check(int code, const char* call) const {
  if (code == kSuccess) return;
  throw CommError(code == kNoMemory ? Errc::kResourceExhausted : Errc::kVendor,
                  format_error(code, call));
}

void Driver::log_failure(int code, const char* call) const noexcept {
  if (code == kSuccess) return;
  base::log(code == cuda::kShuttingDown ? base::LogLevel::kDebug : base::LogLevel::kWarning,
            format_error(code, call));
}

std::string Driver::model_of(int device) const {
  std::array<char, 256> name{};
  check(table_.DeviceGetName(name.data(), static_cast<int>(name.size() - 1), device),
        "DeviceGetName");
  return name.data();
}

DriverUuid Driver::uuid_of(int device) const {
  DriverUuid uuid{};
  check(table_.DeviceGetUuid_v2(&uuid, device), "DeviceGetUuid");
  return uuid;
}

std::optional<int> Driver::device_of(const DriverUuid& uuid) const {
  int count = 0;
  check(table_.DeviceGetCount(&count), "DeviceGetCount");
  for (int device = 0; device < count; ++device)
    if (uuid_of(device) == uuid) return device;
  return std::nullopt;
}

bool Driver::can_access_peer(int device, int peer) const {
  if (device == peer) return true;
  int reaches = 0;
  check(table_.DeviceCanAccessPeer(&reaches, device, peer), "DeviceCanAccessPeer");
  return reaches != 0;
}

bool Driver::has_native_atomics(int device, int peer) const {
  if (device == peer) return true;
  int has = 0;
  check(table_.DeviceGetP2PAttribute(&has, kNativeAtomicsSupported, device, peer),
        "DeviceGetP2PAttribute");
  return has != 0;
}

std::string Driver::unmappable_reason(int device) const {
  for (const auto& [attribute, what] :
       {std::pair{kVirtualMemoryManagementSupported, "virtual memory management"},
        std::pair{kHandleTypePosixFdSupported, "memory behind file descriptors"}}) {
    int has = 0;
    check(table_.DeviceGetAttribute(&has, attribute, device), "DeviceGetAttribute");
    if (has == 0) return std::string("the device has no ") + what;
  }
  return {};
}

AddressRange::AddressRange(std::shared_ptr<const Driver> driver, size_t size_bytes)
    : driver_(std::move(driver)), size_bytes_(size_bytes) {
  driver_->check(driver_->table().MemAddressReserve(&at_, size_bytes_, 0, 0, 0),
                 "MemAddressReserve");
}

AddressRange::~AddressRange() {
  if (at_ != 0)
    driver_->log_failure(driver_->table().MemAddressFree(at_, size_bytes_), "MemAddressFree");
}

size_t ShareableMemory::granularity_bytes(const Driver& driver, int device) {
  const auto wanted = properties_on(device);
  size_t page = 0;
  driver.check(driver.table().MemGetAllocationGranularity(&page, &wanted, kGranularityMinimum),
               "MemGetAllocationGranularity");
  return page;
}

ShareableMemory ShareableMemory::create(const std::shared_ptr<const Driver>& driver,
                                        const Runtime& runtime, int device, size_t size_bytes,
                                        DevicePointer at, unsigned char value) {
  const auto& table = driver->table();
  const auto wanted = properties_on(device);
  const size_t page = granularity_bytes(*driver, device);
  ShareableMemory memory(driver, (size_bytes + page - 1) / page * page);
  driver->check(table.MemCreate(&memory.handle_, memory.size_bytes_, &wanted, 0), "MemCreate");
  memory.map(device, at);
  const auto destroy = [&runtime](NativeStream stream) { runtime.destroy_stream(stream); };
  const std::unique_ptr<void, decltype(destroy)> stream(runtime.create_stream(false), destroy);
  driver->check(table.MemsetD8Async(memory.at_, value, memory.size_bytes_, stream.get()),
                "MemsetD8Async");
  runtime.synchronize(stream.get());
  return memory;
}

ShareableMemory ShareableMemory::import(const std::shared_ptr<const Driver>& driver, int device,
                                        const base::FileDescriptor& shared, size_t size_bytes,
                                        DevicePointer at) {
  ShareableMemory memory(driver, size_bytes);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): CUDA takes the number as a pointer.
  auto* const descriptor = reinterpret_cast<void*>(static_cast<intptr_t>(shared.get()));
  driver->check(
      driver->table().MemImportFromShareableHandle(&memory.handle_, descriptor, kHandleTypePosixFd),
      "MemImportFromShareableHandle");
  memory.map(device, at);
  return memory;
}

void ShareableMemory::map(int device, DevicePointer at) {
  const auto& table = driver_->table();
  if (at == 0) at = range_.emplace(driver_, size_bytes_).at();
  at_ = at;
  driver_->check(table.MemMap(at_, size_bytes_, 0, handle_, 0), "MemMap");
  is_mapped_ = true;
  const MemoryAccess access{{kMemoryOnDevice, device}, kMemoryReadWrite};
  driver_->check(table.MemSetAccess(at_, size_bytes_, &access, 1), "MemSetAccess");
}

ShareableMemory::~ShareableMemory() {
  if (!driver_) return;
  const auto& table = driver_->table();
  if (is_mapped_) driver_->log_failure(table.MemUnmap(at_, size_bytes_), "MemUnmap");
  if (handle_ != 0) driver_->log_failure(table.MemRelease(handle_), "MemRelease");
}

base::FileDescriptor ShareableMemory::export_descriptor() const {
  int descriptor = -1;
  driver_->check(
      driver_->table().MemExportToShareableHandle(&descriptor, handle_, kHandleTypePosixFd, 0),
      "MemExportToShareableHandle");
  return base::FileDescriptor(descriptor);
}

}  // namespace torch::comms::gpu
