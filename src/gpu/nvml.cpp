#include "gpu/nvml.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <string>

#include "base/os/loaded_library.hpp"

namespace torch::comms::gpu {
namespace {

constexpr int kSuccess = 0;
constexpr int kNvlink = 2;  // nvmlGpuP2PCapsIndex of two GPUs
constexpr int kAtomics = 3;

using Gpu = void*;

// The NVML library after nvmlInit. It is never shut down, because other code may use it, too.
class Nvml {
 public:
  Nvml() {
    std::string why;
    library_ = base::open_library("libnvidia-ml.so.1", why);
    if (library_ == nullptr) return;
    bind("nvmlDeviceGetHandleByUUID", find_);
    bind("nvmlDeviceGetP2PStatus", status_);
    int (*init)() = nullptr;
    bind("nvmlInit_v2", init);
    is_there_ = find_ != nullptr && status_ != nullptr && init != nullptr && init() == kSuccess;
  }

  Gpu find(const DriverUuid& uuid) const {
    Gpu gpu = nullptr;
    return is_there_ && find_(text_of(uuid).c_str(), &gpu) == kSuccess ? gpu : nullptr;
  }

  std::optional<bool> have(Gpu one, Gpu other, int what) const {
    int status = 0;
    if (status_(one, other, what, &status) != kSuccess) return std::nullopt;
    return status == kSuccess;
  }

 private:
  template <class Function>
  void bind(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
  }

  static std::string text_of(const DriverUuid& uuid) {
    std::string text = "GPU-";
    for (size_t i = 0; i < sizeof uuid.bytes; ++i) {
      char digits[4];
      std::snprintf(digits, sizeof digits, "%02x", unsigned{uuid.bytes[i]});
      if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
      text += digits;
    }
    return text;
  }

  void* library_ = nullptr;
  int (*find_)(const char* uuid, Gpu*) = nullptr;
  int (*status_)(Gpu, Gpu, int what, int* status) = nullptr;
  bool is_there_ = false;
};

}  // namespace

std::optional<bool> are_connected_by_nvlink(const DriverUuid& one, const DriverUuid& other) {
  static const Nvml nvml;
  auto* const here = nvml.find(one);
  auto* const there = nvml.find(other);
  if (here == nullptr || there == nullptr) return std::nullopt;
  const auto nvlink = nvml.have(here, there, kNvlink), atomics = nvml.have(here, there, kAtomics);
  if (nvlink.value_or(false) || atomics.value_or(false)) return true;
  return nvlink ? nvlink : atomics;
}

}  // namespace torch::comms::gpu
