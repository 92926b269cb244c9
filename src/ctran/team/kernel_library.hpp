#pragma once

#include <string>

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"
#include "gpu/runtime.hpp"

namespace torch::comms::ctran {

// The library of device kernels: the file that TORCHCOMM_KERNELS_LIBRARY names, else the one beside
// this code, loaded at first use and kept.
struct KernelLibrary {
  const kernels::KernelFunctionTable* functions;
  std::string path;
  const kernels::WindowCollectiveTable* window_collectives =
      nullptr;  // null where it has none that are known here

  // For the device that is current, which is `runtime`'s. Throws CommError(kBackendUnavailable)
  // saying what was looked for, or why it is not usable. Any thread.
  static KernelLibrary load(const gpu::Runtime& runtime);
  // Whether the file that the variable names is one for host memory. Any thread.
  static bool is_for_host();
};

// What a library for host memory calls its architecture.
inline constexpr const char* kHostArchitecture = "host";

}  // namespace torch::comms::ctran
