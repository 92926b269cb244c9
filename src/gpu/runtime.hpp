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

// A vendor's runtime library: a row.
struct RuntimeRow {
  std::string_view name;       // "cuda"
  std::string_view prefix;     // of its functions: "cuda"
  std::string_view stem;       // what its file names begin with: "libcudart.so"
  const char* const* sonames;  // tried in turn where no such library is loaded; ends with null
  const char* const* renamed_symbols;  // pairs of a name in the list and what it is called here
  DriverEntryPoints (*driver_entry_points)() = nullptr;  // null: there are none
};
TC_API extern const RuntimeRow kCuda, kHip;

// A GPU runtime bound to its library. Methods throw CommError(kVendor) with the runtime's own text.
//
// Threads: any. Streams belong to the device that is current when they are made.
class TC_API Runtime {
 public:
  // The library that the process has loaded already, which is torch's, else the first of the row's
  // sonames that loads. Throws CommError(kBackendUnavailable) saying what was looked for.
  static Runtime load(const RuntimeRow& row);
  // The process's one: loaded at first use. Nothing is kept of a failure.
  static std::shared_ptr<const Runtime> of(const RuntimeRow& row);
  // Host memory, and streams that are threads of this process. See cpu.hpp.
  static const Runtime& cpu();
  static std::shared_ptr<const Runtime> shared_cpu() { return {std::shared_ptr<void>(), &cpu()}; }
  // For tests: with functions of their own.
  Runtime(std::string_view name, std::string path, const RuntimeTable& table,
          const DriverEntryPoints& shortcuts = {})
      : name_(name), path_(std::move(path)), table_(table), driver_entry_points_(shortcuts) {}

  std::string_view name() const noexcept { return name_; }
  const std::string& path() const noexcept { return path_; }  // of the library; "" for cpu
  const RuntimeTable& table() const noexcept { return table_; }

  // 0 without a driver; `why` then gets the runtime's own words.
  int device_count(std::string* why = nullptr) const noexcept;
  int device() const;
  // What stands for the device that is current: the same for another one only after a reset of
  // devices. Null where that is not known.
  const void* context() const noexcept {
    void* context = nullptr;
    if (driver_entry_points_.CtxGetCurrent == nullptr ||
        driver_entry_points_.CtxGetCurrent(&context) != kSuccess)
      return nullptr;
    return context;
  }
  // False where it is known that the thread has none yet.
  bool has_device() const noexcept {
    void* context = nullptr;
    return driver_entry_points_.CtxGetCurrent == nullptr ||
           driver_entry_points_.CtxGetCurrent(&context) != kSuccess || context != nullptr;
  }
  void set_device(int index) const;
  // For good, of a thread of ours that others' code calls the runtime on: see CaptureModeGuard.
  void set_relaxed_capture_mode() const noexcept;

  NativeStream create_stream(bool high_priority) const;
  void synchronize(NativeStream stream) const;
  void wait(NativeStream stream, NativeEvent event) const;
  CaptureId capture_of(NativeStream stream) const;
  // Runs `function` on a thread of the runtime when the stream gets there. It must call none of
  // these methods.
  void launch_host(NativeStream stream, void (*function)(void*), void* argument) const;
  void copy_to_device(void* to, const void* from, size_t size_bytes, NativeStream stream) const;
  void copy_on_device(void* to, const void* from, size_t size_bytes, NativeStream stream) const;
  void copy_to_host(void* to, const void* from, size_t size_bytes, NativeStream stream) const;

  NativeEvent create_event() const;
  void record(NativeEvent event, NativeStream stream) const;
  // True when all that was recorded before is done. Never of an event of a capture.
  bool is_done(NativeEvent event) const;
  void synchronize_event(NativeEvent event) const;

  // For destructors, which cannot throw: what fails is logged.
  void destroy_stream(NativeStream stream) const noexcept;
  void destroy_event(NativeEvent event) const noexcept;

  // Of the current device, whoever uses the rest. 0 where that is not known.
  size_t free_bytes() const noexcept;

  void* allocate_pinned(size_t size_bytes) const;
  void free_pinned(void* at) const noexcept;

 private:
  friend class CaptureModeGuard;
  void check(int code, const char* call) const;
  void exchange_capture_mode(int& mode) const noexcept;
  void log_failure(int code, const char* call) const noexcept;
  // What takes a handle away, which is not to be tried twice.
  void destroy_handle(int (*shortcut)(void*), int (*function)(void*), void* handle,
                      const char* call) const noexcept;

  std::string_view name_;
  std::string path_;
  RuntimeTable table_;
  DriverEntryPoints driver_entry_points_;
};

// While it lives, runtime calls of this thread neither end nor fail because of captures that other
// threads have begun. Every thread of ours that calls the runtime by itself needs one.
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

// Makes a device current for a scope. A thread that has chosen none stays with it: to go back to
// the first one would take memory there.
class TC_API DeviceGuard {
 public:
  DeviceGuard(const Runtime& runtime, int index);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  const Runtime& runtime_;
  std::optional<int> previous_;  // nothing where it was current already
};

}  // namespace torch::comms::gpu
