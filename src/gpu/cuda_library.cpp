#include "gpu/cuda_library.hpp"

#include <dlfcn.h>

#include "base/os/loaded_library.hpp"

namespace torch::comms::gpu {

void* cuda_driver_function(const char* name, std::string& why) {
  std::string reason;
  void* const library = base::open_library("libcuda.so.1", reason);
  if (library == nullptr) {
    why = "the CUDA driver does not load (" + reason + ")";
    return nullptr;
  }
  const auto symbol = std::string("cu") + name;
  void* const address = ::dlsym(library, symbol.c_str());
  if (address == nullptr) why = "the CUDA driver is too old: it has no function " + symbol;
  return address;
}

}  // namespace torch::comms::gpu
