#include "gpu/runtime.hpp"

#include <dlfcn.h>

#include <map>
#include <mutex>
#include <type_traits>

#include <torchcomms/base/error.hpp>

#include "base/os/loaded_library.hpp"
#include "base/os/log.hpp"
#include "gpu/cpu_runtime.hpp"
#include "gpu/cuda_driver.hpp"

namespace torch::comms::gpu {
namespace {

constexpr const char* kCudaSonames[] = {"libcudart.so.13", "libcudart.so.12", nullptr};
constexpr const char* kHipSonames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5",
                                       nullptr};
constexpr const char* kAsListed[] = {nullptr};
constexpr const char* kHipSpellings[] = {"HostAlloc", "HostMalloc", "FreeHost", "HostFree",
                                         nullptr};

struct OpenedRuntime {
  void* handle = nullptr;
  std::string path;
  std::string tried;  // the names that were tried, and why each failed
};

OpenedRuntime open(const RuntimeRow& row) {
  OpenedRuntime opened;
  std::string why;
  for (auto& path : base::loaded_libraries(row.stem)) {
    opened.handle = base::open_library(path, why);
    opened.path = std::move(path);
    if (opened.handle != nullptr) return opened;
    opened.tried += "; " + why;
  }
  for (const auto* soname = row.sonames; *soname != nullptr; ++soname) {
    opened.handle = base::open_library(*soname, why);
    opened.path = *soname;
    if (opened.handle != nullptr) return opened;
    opened.tried += "; " + why;
  }
  return opened;
}

// Calls the driver's entry point. Returns: false if the runtime function must be called.
template <class... Arguments>
bool is_done_by(int (*shortcut)(Arguments...), std::type_identity_t<Arguments>... arguments) {
  return shortcut != nullptr && shortcut(arguments...) == kSuccess;
}

std::string symbol_name(const RuntimeRow& row, std::string_view name) {
  for (const auto* spelling = row.renamed_symbols; *spelling != nullptr; spelling += 2)
    if (name == *spelling) name = spelling[1];
  return std::string(row.prefix) + std::string(name);
}

}  // namespace

const RuntimeRow kCuda{"cuda",       "cuda",    "libcudart.so",
                       kCudaSonames, kAsListed, cuda_driver_entry_points};
const RuntimeRow kHip{"hip", "hip", "libamdhip64.so", kHipSonames, kHipSpellings};

Runtime Runtime::load(const RuntimeRow& row) {
  const auto opened = open(row);
  const auto refuse = [&](const std::string& why) {
    throw CommError(Errc::kBackendUnavailable, "the " + std::string(row.name) + " runtime " + why);
  };
  if (opened.handle == nullptr)
    refuse("was not found: searched for " + std::string(row.stem) + " among the loaded libraries" +
           opened.tried);
  RuntimeTable table;
  const auto bind = [&](std::string_view name) {
    const auto symbol = symbol_name(row, name);
    void* address = ::dlsym(opened.handle, symbol.c_str());
    if (address == nullptr) refuse("in " + opened.path + " has no function " + symbol);
    return address;
  };
#define TC_GPU_BIND(name, ...) \
  table.name = reinterpret_cast<RuntimeTable::name##Function*>(bind(#name));
  TC_GPU_SYMBOLS(TC_GPU_BIND)
#undef TC_GPU_BIND
  return {row.name, opened.path, table,
          row.driver_entry_points ? row.driver_entry_points() : DriverEntryPoints{}};
}

std::shared_ptr<const Runtime> Runtime::of(const RuntimeRow& row) {
  static std::mutex mutex;
  static std::map<const RuntimeRow*, std::shared_ptr<const Runtime>> known;
  const std::lock_guard lock(mutex);
  auto& runtime = known[&row];
  if (!runtime) runtime = std::make_shared<const Runtime>(load(row));
  return runtime;
}

const Runtime& Runtime::cpu() {
  static const Runtime runtime("cpu", "", cpu_table());
  return runtime;
}

void Runtime::check(int code, const char* call) const {
  if (code == kSuccess) return;
  table_.GetLastError();  // clears the error, which a later call of other code would get
  throw CommError(Errc::kVendor, std::string(name_) + call + ": " + table_.GetErrorString(code) +
                                     " (" + std::to_string(code) + ")");
}

void Runtime::log_failure(int code, const char* call) const noexcept {
  if (code == kSuccess) return;
  table_.GetLastError();
  base::log(code == cuda::kShuttingDown ? base::LogLevel::kDebug : base::LogLevel::kWarning,
            std::string(name_) + call + ": " + table_.GetErrorString(code));
}

int Runtime::device_count(std::string* why) const noexcept {
  int count = 0;
  const int code = table_.GetDeviceCount(&count);
  if (code == kSuccess) return count;
  table_.GetLastError();
  if (why != nullptr) *why = table_.GetErrorString(code);
  return 0;
}

int Runtime::device() const {
  int index = 0;
  check(table_.GetDevice(&index), "GetDevice");
  return index;
}

void Runtime::set_device(int index) const { check(table_.SetDevice(index), "SetDevice"); }

NativeStream Runtime::create_stream(bool high_priority) const {
  int least = 0, greatest = 0;
  check(table_.DeviceGetStreamPriorityRange(&least, &greatest), "DeviceGetStreamPriorityRange");
  NativeStream stream = nullptr;
  check(table_.StreamCreateWithPriority(&stream, kStreamNonBlocking,
                                        high_priority ? greatest : least),
        "StreamCreateWithPriority");
  return stream;
}

void Runtime::synchronize(NativeStream stream) const {
  if (is_done_by(driver_entry_points_.StreamSynchronize, stream)) return;
  check(table_.StreamSynchronize(stream), "StreamSynchronize");
}

void Runtime::wait(NativeStream stream, NativeEvent event) const {
  if (is_done_by(driver_entry_points_.StreamWaitEvent, stream, event, 0)) return;
  check(table_.StreamWaitEvent(stream, event, 0), "StreamWaitEvent");
}

CaptureId Runtime::capture_of(NativeStream stream) const {
  int status = 0;
  if (is_done_by(driver_entry_points_.StreamIsCapturing, stream, &status) && status == 0) return 0;
  CaptureId id = 0;
  check(table_.StreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr),
        "StreamGetCaptureInfo");
  return status == 0 ? 0 : id;
}

void Runtime::launch_host(NativeStream stream, void (*function)(void*), void* argument) const {
  check(table_.LaunchHostFunc(stream, function, argument), "LaunchHostFunc");
}

void Runtime::copy_to_device(void* to, const void* from, size_t size_bytes,
                             NativeStream stream) const {
  check(table_.MemcpyAsync(to, from, size_bytes, kCopyHostToDevice, stream), "MemcpyAsync");
}

void Runtime::copy_on_device(void* to, const void* from, size_t size_bytes,
                             NativeStream stream) const {
  check(table_.MemcpyAsync(to, from, size_bytes, kCopyDeviceToDevice, stream), "MemcpyAsync");
}

void Runtime::copy_to_host(void* to, const void* from, size_t size_bytes,
                           NativeStream stream) const {
  check(table_.MemcpyAsync(to, from, size_bytes, kCopyDeviceToHost, stream), "MemcpyAsync");
}

NativeEvent Runtime::create_event() const {
  NativeEvent event = nullptr;
  check(table_.EventCreateWithFlags(&event, kEventDisableTiming), "EventCreateWithFlags");
  return event;
}

void Runtime::record(NativeEvent event, NativeStream stream) const {
  if (is_done_by(driver_entry_points_.EventRecord, event, stream)) return;
  check(table_.EventRecord(event, stream), "EventRecord");
}

bool Runtime::is_done(NativeEvent event) const {
  if (driver_entry_points_.EventQuery != nullptr) {
    const int code = driver_entry_points_.EventQuery(event);
    if (code == kSuccess || code == kNotReady) return code == kSuccess;
  }
  const int code = table_.EventQuery(event);
  if (code == kNotReady) {
    table_.GetLastError();
    return false;
  }
  check(code, "EventQuery");
  return true;
}

void Runtime::synchronize_event(NativeEvent event) const {
  check(table_.EventSynchronize(event), "EventSynchronize");
}

void Runtime::destroy_handle(int (*shortcut)(void*), int (*function)(void*), void* handle,
                             const char* call) const noexcept {
  // After other failures it is unknown whether the handle still exists: they may be errors of
  // earlier launches.
  const auto has_done_nothing = [](int code) {
    return code == cuda::kNotInitialized || code == cuda::kShuttingDown || code == cuda::kNoContext;
  };
  int code = shortcut != nullptr ? shortcut(handle) : cuda::kNoContext;
  if (has_done_nothing(code)) code = function(handle);
  log_failure(code, call);
}

void Runtime::destroy_stream(NativeStream stream) const noexcept {
  destroy_handle(driver_entry_points_.StreamDestroy, table_.StreamDestroy, stream, "StreamDestroy");
}

void Runtime::destroy_event(NativeEvent event) const noexcept {
  destroy_handle(driver_entry_points_.EventDestroy, table_.EventDestroy, event, "EventDestroy");
}

size_t Runtime::free_bytes() const noexcept {
  size_t free = 0, total = 0;
  if (table_.MemGetInfo(&free, &total) == kSuccess) return free;
  table_.GetLastError();
  return 0;
}

void* Runtime::allocate_pinned(size_t size_bytes) const {
  void* at = nullptr;
  check(table_.HostAlloc(&at, size_bytes, 0), "HostAlloc");
  return at;
}

void Runtime::free_pinned(void* at) const noexcept {
  if (at != nullptr) destroy_handle(driver_entry_points_.FreeHost, table_.FreeHost, at, "FreeHost");
}

void Runtime::exchange_capture_mode(int& mode) const noexcept {
  if (is_done_by(driver_entry_points_.ThreadExchangeStreamCaptureMode, &mode)) return;
  log_failure(table_.ThreadExchangeStreamCaptureMode(&mode), "ThreadExchangeStreamCaptureMode");
}

void Runtime::set_relaxed_capture_mode() const noexcept {
  int mode = kCaptureModeRelaxed;
  exchange_capture_mode(mode);
}

CaptureModeGuard::CaptureModeGuard(const Runtime& runtime) noexcept
    : runtime_(runtime), mode_(kCaptureModeRelaxed) {
  runtime_.exchange_capture_mode(mode_);
}

CaptureModeGuard::~CaptureModeGuard() { runtime_.exchange_capture_mode(mode_); }

DeviceGuard::DeviceGuard(const Runtime& runtime, int index) : runtime_(runtime) {
  const int before = runtime.device();
  const bool has_none = before == 0 && !runtime.has_device();
  if (before == index && !has_none) return;
  runtime.set_device(index);
  if (!has_none) previous_ = before;
}

DeviceGuard::~DeviceGuard() {
  if (!previous_) return;
  try {
    runtime_.set_device(*previous_);
  } catch (const CommError& e) {
    base::log(base::LogLevel::kWarning, e.what());
  }
}

}  // namespace torch::comms::gpu
