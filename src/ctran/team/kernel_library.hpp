#pragma once

#include <string>

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::ctran {

// The library of device kernels: the file that TORCHCOMM_KERNELS_LIBRARY names, else the file
// beside this code. It is loaded at first use and stays loaded.
struct KernelLibrary {
  const kernels::KernelFunctionTable* functions;
  std::string path;
  const kernels::WindowCollectiveTable* window_collectives =
      nullptr;  // null if it has none of this version

  // Loads the library for the current device, which is one of `runtime`.
  // Throws: CommError(kBackendUnavailable), which says which file was tried, or why it is not
  // usable.
  // Threads: any.
  static KernelLibrary load(const gpu::Runtime& runtime);
  // Whether the file that TORCHCOMM_KERNELS_LIBRARY names is for host memory.
  // Threads: any.
  static bool is_for_host();
};

// The architecture that a library for host memory reports.
inline constexpr const char* kHostArchitecture = "host";

}  // namespace torch::comms::ctran
