#include "ctran/team/kernel_library.hpp"

#include <dlfcn.h>

#include <string_view>

#include <torchcomms/base/error.hpp>

#include "base/os/env.hpp"
#include "base/os/loaded_library.hpp"

namespace torch::comms::ctran {
namespace {

constexpr const char* kVariable = "TORCHCOMM_KERNELS_LIBRARY";

[[noreturn]] void refuse(const std::string& why) {
  throw CommError(Errc::kBackendUnavailable, why);
}

// Returns the path beside this code, or only the file name if this code's own path is unknown.
std::string beside_this_code(std::string_view runtime) {
  const auto here = base::path_of_library(reinterpret_cast<const void*>(&KernelLibrary::load));
  const auto folder = here.substr(0, here.rfind('/') + 1);
  return folder + "libtorchcomms_kernels_" + std::string(runtime) + ".so";
}

}  // namespace

bool KernelLibrary::is_for_host() {
  if (!base::env_text(kVariable)) return false;
  try {
    load(gpu::Runtime::cpu());
    return true;
  } catch (const CommError&) {
    return false;
  }
}

KernelLibrary KernelLibrary::load(const gpu::Runtime& runtime) {
  const auto named = base::env_text(kVariable);
  const auto path = named ? *named : beside_this_code(runtime.name());
  std::string why;
  void* const library = base::open_library(path, why);
  if (library == nullptr)
    refuse((named ? "cannot load the kernel library: " : "this build has no kernel library: ") +
           why);
  auto* const entry =
      reinterpret_cast<kernels::KernelLibraryEntry>(::dlsym(library, kernels::kSymbol));
  if (entry == nullptr)
    refuse(path + " is not a kernel library: it has no symbol " + kernels::kSymbol);
  const auto* functions = entry();
  if (functions == nullptr) refuse(path + " has no kernels that run on this device");
  if (functions->abi != kernels::kAbi)
    refuse(path + " is from another build: it has kernel interface " +
           std::to_string(functions->abi) + ", this build needs " + std::to_string(kernels::kAbi));
  const std::string_view architectures = functions->architectures();
  if ((architectures == kHostArchitecture) != (runtime.name() == "cpu"))
    refuse(path + " has kernels for " + std::string(architectures) + ", not for " +
           std::string(runtime.name()));
  const auto window_entry = reinterpret_cast<kernels::WindowCollectiveEntry>(
      ::dlsym(library, kernels::kWindowCollectivesSymbol));
  const auto* found = window_entry != nullptr ? window_entry() : nullptr;
  if (found != nullptr && found->version != kernels::kWindowCollectivesVersion) found = nullptr;
  return {functions, path, found};
}

}  // namespace torch::comms::ctran
