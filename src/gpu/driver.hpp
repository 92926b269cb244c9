#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "gpu/driver_symbols.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// A GPU driver bound to its library. Devices are numbered as by the runtime. Methods throw
// CommError(kVendor), kResourceExhausted where there is no memory, with the driver's own text.
//
// Threads: any.
class TC_API Driver {
 public:
  // Of `runtime`'s devices, the process's one: bound at first use. For host memory: see
  // cpu_driver.hpp. Throws CommError(kBackendUnavailable) saying what was looked for.
  static std::shared_ptr<const Driver> of(const Runtime& runtime);
  // Whether a link as of has_native_atomics() joins two devices, also such as this process does not
  // see; nothing where nobody can tell.
  using NativeAtomicsQuery = std::optional<bool>(const DriverUuid& one, const DriverUuid& other);
  // For tests: with functions of their own.
  Driver(
      std::string_view name, const DriverTable& table,
      NativeAtomicsQuery* joined = [](const DriverUuid&, const DriverUuid&) -> std::optional<bool> {
        return std::nullopt;
      })
      : name_(name), table_(table), native_atomics_query_(joined) {}

  std::string_view name() const noexcept { return name_; }  // "cuda", "cpu"
  const DriverTable& table() const noexcept { return table_; }

  // Its model, as the vendor calls it: "NVIDIA H200".
  std::string model_of(int device) const;
  // The same for one device in all processes.
  DriverUuid uuid_of(int device) const;
  // The device's number here; nothing where this process does not see it.
  std::optional<int> device_of(const DriverUuid& uuid) const;
  // Whether kernels on `device` may use the memory of `peer`, which may be the same.
  bool can_access_peer(int device, int peer) const;
  // Whether they are joined by a link that has atomic operations, as NVLink has and PCIe has not.
  bool has_native_atomics(int device, int peer) const;
  // The same of one that this process does not see.
  std::optional<bool> is_joined(int device, const DriverUuid& unseen) const {
    return native_atomics_query_(uuid_of(device), unseen);
  }
  // Why memory of `device` cannot be mapped by other processes; "" where it can.
  std::string unmappable_reason(int device) const;

  void check(int code, const char* call) const;
  void log_failure(int code, const char* call) const noexcept;

 private:
  std::string format_error(int code, const char* call) const;
  std::string_view name_;
  DriverTable table_;
  NativeAtomicsQuery* native_atomics_query_;
};

bool operator==(const DriverUuid& a, const DriverUuid& b) noexcept;

// Addresses that memory of a device can be mapped at, or parts of it one after the other.
class TC_API AddressRange {
 public:
  // No shorter than `size_bytes`. Throws as CudaGraphFunctions.
  AddressRange(std::shared_ptr<const Driver> driver, size_t size_bytes);
  AddressRange(AddressRange&& other) noexcept
      : driver_(std::move(other.driver_)),
        at_(std::exchange(other.at_, 0)),
        size_bytes_(other.size_bytes_) {}
  AddressRange& operator=(AddressRange&&) = delete;
  // Nothing is mapped there any more.
  ~AddressRange();

  DevicePointer at() const noexcept { return at_; }

 private:
  std::shared_ptr<const Driver> driver_;
  DevicePointer at_ = 0;
  size_t size_bytes_;
};

// Memory of a device which several processes map. It goes when the last of them has let go of it.
class TC_API ShareableMemory {
 public:
  // Of `device`, in whose reach it is mapped here; at least `size_bytes`, all of them `value`.
  // `at`: where, which is in an AddressRange that outlives it; 0: at addresses of its own.
  static ShareableMemory create(const std::shared_ptr<const Driver>& driver, const Runtime& runtime,
                                int device, size_t size_bytes, DevicePointer at = 0,
                                unsigned char value = 0);
  // What another process, or thread of this one, has created with that size and shared: mapped for
  // kernels on `device`.
  static ShareableMemory import(const std::shared_ptr<const Driver>& driver, int device,
                                const base::FileDescriptor& shared, size_t size_bytes,
                                DevicePointer at = 0);
  // What sizes and places of such memory are multiples of.
  static size_t granularity_bytes(const Driver& driver, int device);
  ShareableMemory(ShareableMemory&& other) noexcept
      : driver_(std::move(other.driver_)),
        range_(std::move(other.range_)),
        handle_(std::exchange(other.handle_, 0)),
        at_(std::exchange(other.at_, 0)),
        size_bytes_(other.size_bytes_),
        is_mapped_(std::exchange(other.is_mapped_, false)) {}
  ShareableMemory& operator=(ShareableMemory&&) = delete;
  ~ShareableMemory();

  // For import(). Throws as it.
  base::FileDescriptor export_descriptor() const;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
  void* at() const noexcept { return reinterpret_cast<void*>(at_); }
  // As it was created: whole pages of the device.
  size_t size_bytes() const noexcept { return size_bytes_; }

 private:
  ShareableMemory(std::shared_ptr<const Driver> driver, size_t size_bytes)
      : driver_(std::move(driver)), size_bytes_(size_bytes) {}
  void map(int device, DevicePointer at);

  std::shared_ptr<const Driver> driver_;
  std::optional<AddressRange> range_;
  AllocationHandle handle_ = 0;
  DevicePointer at_ = 0;
  size_t size_bytes_;
  bool is_mapped_ = false;
};

}  // namespace torch::comms::gpu
