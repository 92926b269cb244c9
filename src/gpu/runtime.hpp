#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <torchcomms/base/export.hpp>

#include "gpu/driver_entry_points.hpp"
#include "gpu/runtime_symbols.hpp"

namespace torch::comms::gpu {

// The description of a vendor's runtime library.
struct RuntimeRow {
  std::string_view name;       // "cuda"
  std::string_view prefix;     // of its function names: "cuda"
  std::string_view stem;       // of its file names: "libcudart.so"
  const char* const* sonames;  // tried in order if no such library is loaded; null-terminated
  const char* const* renamed_symbols;  // pairs: name in the symbol list, name in this library
  DriverEntryPoints (*driver_entry_points)() = nullptr;  // null: none
};
TC_API extern const RuntimeRow kCuda, kHip;

// A GPU runtime bound to its library.
//
// Throws: methods throw CommError(kVendor) with the runtime's text.
// Threads: any. Streams belong to the device that is current when they are created.
class TC_API Runtime {
 public:
  // Binds the library that the process has already loaded (torch's). If there is none, loads the
  // first of the row's sonames that can be loaded.
  // Throws: CommError(kBackendUnavailable) that says what was searched, or which function the
  // library lacks.
  static Runtime load(const RuntimeRow& row);
  // Returns the process's instance, loaded at first use. A failed load is tried again at the next
  // call.
  // Throws: like load().
  static std::shared_ptr<const Runtime> of(const RuntimeRow& row);
  // Returns the runtime for host memory, whose streams are threads of this process. See
  // cpu_runtime.hpp.
  static const Runtime& cpu();
  static std::shared_ptr<const Runtime> shared_cpu() { return {std::shared_ptr<void>(), &cpu()}; }
  // For tests, which pass their own functions.
  Runtime(std::string_view name, std::string path, const RuntimeTable& table,
          const DriverEntryPoints& shortcuts = {})
      : name_(name), path_(std::move(path)), table_(table), driver_entry_points_(shortcuts) {}

  std::string_view name() const noexcept { return name_; }
  const std::string& path() const noexcept { return path_; }  // path of the library; "" for cpu
  const RuntimeTable& table() const noexcept { return table_; }

  // Returns the number of devices; 0 without a driver, and `why` is then the runtime's text.
  int device_count(std::string* why = nullptr) const noexcept;
  int device() const;
  // Returns the driver context of the current device; null if unknown. The contexts of two devices
  // differ, but after a device reset another device may get an old value.
  const void* context() const noexcept {
    void* context = nullptr;
    if (driver_entry_points_.CtxGetCurrent == nullptr ||
        driver_entry_points_.CtxGetCurrent(&context) != kSuccess)
      return nullptr;
    return context;
  }
  // Returns false only if it is known that the thread has no current device yet.
  bool has_device() const noexcept {
    void* context = nullptr;
    return driver_entry_points_.CtxGetCurrent == nullptr ||
           driver_entry_points_.CtxGetCurrent(&context) != kSuccess || context != nullptr;
  }
  void set_device(int index) const;
  // Sets the relaxed capture mode for the rest of the thread's life. For threads of torchcomms on
  // which other code calls the runtime: see CaptureModeGuard.
  void set_relaxed_capture_mode() const noexcept;

  // Creates a stream that does not synchronize with the default stream.
  NativeStream create_stream(bool high_priority) const;
  // Waits for all work of the stream, which must not be capturing.
  void synchronize(NativeStream stream) const;
  // Makes later work of the stream wait for the last record of `event`.
  void wait(NativeStream stream, NativeEvent event) const;
  CaptureId capture_of(NativeStream stream) const;
  // Runs `function` on a thread of the runtime when the stream reaches it. `function` must not call
  // methods of Runtime. In a capture, it runs in each launch of the graph.
  void launch_host(NativeStream stream, void (*function)(void*), void* argument) const;
  // Enqueue a copy.
  // Lifetime: both ranges must be valid until the stream has done the copy.
  void copy_to_device(void* to, const void* from, size_t size_bytes, NativeStream stream) const;
  void copy_on_device(void* to, const void* from, size_t size_bytes, NativeStream stream) const;
  void copy_to_host(void* to, const void* from, size_t size_bytes, NativeStream stream) const;

  NativeEvent create_event() const;
  void record(NativeEvent event, NativeStream stream) const;
  // Returns whether all work before the last record is done; true without a record. The last record
  // must not be part of a capture.
  bool is_done(NativeEvent event) const;
  // Waits for all work before the last record, which must not be part of a capture.
  void synchronize_event(NativeEvent event) const;

  // For destructors, which cannot throw: errors are logged. Work that was enqueued before still
  // runs.
  void destroy_stream(NativeStream stream) const noexcept;
  void destroy_event(NativeEvent event) const noexcept;

  // Returns the free memory of the current device; 0 if unknown. Memory that other processes use is
  // not free.
  // Units: bytes.
  size_t free_bytes() const noexcept;

  void* allocate_pinned(size_t size_bytes) const;
  // Logs errors. Null is allowed.
  void free_pinned(void* at) const noexcept;

 private:
  friend class CaptureModeGuard;
  void check(int code, const char* call) const;
  void exchange_capture_mode(int& mode) const noexcept;
  void log_failure(int code, const char* call) const noexcept;
  // Destroys a handle by `shortcut`. Calls `function` only if `shortcut` has surely done nothing,
  // because a handle must not be destroyed twice.
  void destroy_handle(int (*shortcut)(void*), int (*function)(void*), void* handle,
                      const char* call) const noexcept;

  std::string_view name_;
  std::string path_;
  RuntimeTable table_;
  DriverEntryPoints driver_entry_points_;
};

// Sets the relaxed capture mode of this thread for its scope. Runtime calls then neither invalidate
// captures of other threads nor fail because of them. Every thread of torchcomms that calls the
// runtime on its own needs one. The destructor restores the previous mode.
// Lifetime: `runtime` must outlive the guard.
class TC_API CaptureModeGuard {
 public:
  explicit CaptureModeGuard(const Runtime& runtime) noexcept;
  ~CaptureModeGuard();
  CaptureModeGuard(const CaptureModeGuard&) = delete;
  CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

 private:
  const Runtime& runtime_;
  int mode_;
};

// Makes a device current for its scope. If the thread had no current device, the device stays
// current: to switch back to device 0 would allocate memory there.
// Lifetime: `runtime` must outlive the guard.
class TC_API DeviceGuard {
 public:
  DeviceGuard(const Runtime& runtime, int index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const Runtime& runtime_;
  std::optional<int> previous_;  // nothing to restore if empty
};

}  // namespace torch::comms::gpu
