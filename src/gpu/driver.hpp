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

// A GPU driver bound to its library. Devices have the runtime's numbers.
//
// Throws: methods throw CommError(kVendor), or kResourceExhausted if memory ran out, with the
// driver's text.
// Threads: any.
class TC_API Driver {
 public:
  // Returns the process's driver for the devices of `runtime`, loaded at first use. For the host
  // memory runtime see cpu_driver.hpp.
  // Throws: CommError(kBackendUnavailable) that says what was searched.
  static std::shared_ptr<const Driver> of(const Runtime& runtime);
  // Returns whether a link as in has_native_atomics() connects two devices, even if this process
  // does not see both; nothing if unknown.
  using NativeAtomicsQuery = std::optional<bool>(const DriverUuid& one, const DriverUuid& other);
  // For tests, which pass their own functions.
  Driver(
      std::string_view name, const DriverTable& table,
      NativeAtomicsQuery* joined = [](const DriverUuid&, const DriverUuid&) -> std::optional<bool> {
        return std::nullopt;
      })
      : name_(name), table_(table), native_atomics_query_(joined) {}

  std::string_view name() const noexcept { return name_; }  // "cuda", "cpu"
  const DriverTable& table() const noexcept { return table_; }

  // Returns the model name of the device: "NVIDIA H200".
  std::string model_of(int device) const;
  // Returns an id that is equal for a device in all processes.
  DriverUuid uuid_of(int device) const;
  // Returns the number of the device in this process; nothing if it is not visible here.
  std::optional<int> device_of(const DriverUuid& uuid) const;
  // Returns whether kernels on `device` may access memory of `peer`; true for the same device.
  bool can_access_peer(int device, int peer) const;
  // Returns whether the link between the devices supports atomic operations, as NVLink does and
  // PCIe does not.
  bool has_native_atomics(int device, int peer) const;
  // Returns the same for a device that this process does not see; nothing if unknown.
  std::optional<bool> is_joined(int device, const DriverUuid& unseen) const {
    return native_atomics_query_(uuid_of(device), unseen);
  }
  // Returns why other processes cannot map memory of `device`; "" if they can.
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

// A reserved range of device addresses. Memory can be mapped to it, also in parts.
class TC_API AddressRange {
 public:
  // Reserves at least `size_bytes`. Throws: as Driver.
  AddressRange(std::shared_ptr<const Driver> driver, size_t size_bytes);
  AddressRange(AddressRange&& other) noexcept
      : driver_(std::move(other.driver_)),
        at_(std::exchange(other.at_, 0)),
        size_bytes_(other.size_bytes_) {}
  AddressRange& operator=(AddressRange&&) = delete;
  // All memory must be unmapped before.
  ~AddressRange();

  DevicePointer at() const noexcept { return at_; }

 private:
  std::shared_ptr<const Driver> driver_;
  DevicePointer at_ = 0;
  size_t size_bytes_;
};

// Device memory that several processes can map. It is freed when the last process has unmapped and
// released it.
class TC_API ShareableMemory {
 public:
  // Allocates at least `size_bytes` on `device`, maps them there, and sets all bytes to `value`.
  // `at`: an address in an AddressRange that outlives the memory; 0: a range of its own. Throws: as
  // Driver.
  static ShareableMemory create(const std::shared_ptr<const Driver>& driver, const Runtime& runtime,
                                int device, size_t size_bytes, DevicePointer at = 0,
                                unsigned char value = 0);
  // Maps memory that another process, or another thread, has created with `size_bytes` and
  // exported, for kernels on `device`.
  static ShareableMemory import(const std::shared_ptr<const Driver>& driver, int device,
                                const base::FileDescriptor& shared, size_t size_bytes,
                                DevicePointer at = 0);
  // Returns the granularity of sizes and offsets, in bytes.
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

  // Returns a descriptor for import(). Throws: as import().
  base::FileDescriptor export_descriptor() const;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's addresses are numbers.
  void* at() const noexcept { return reinterpret_cast<void*>(at_); }
  // Returns the allocated size: whole pages of the device.
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
