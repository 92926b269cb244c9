#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/core/Allocator.h>
#include <torch/version.h>
#include <torchcomms/backend.hpp>

namespace torch::comms {

#define TC_STRINGIFY_(x) #x
#define TC_STRINGIFY(x) TC_STRINGIFY_(x)
// The interface version that a backend library must have been built for: the version of these
// headers and torch's major and minor version.
#define TORCHCOMM_BACKEND_ABI_VERSION \
  "tc1+torch" TC_STRINGIFY(TORCH_VERSION_MAJOR) "." TC_STRINGIFY(TORCH_VERSION_MINOR)

// The functions of a backend library. Its C function `create_dynamic_loader_<backend>` returns them
// by value. No function may be null.
// Lifetime: the process loads a library once and never unloads it.
struct DynamicLoaderInterface {
  TorchCommBackend* (*new_comm)();
  void (*destroy_comm)(TorchCommBackend*);
  const char* (*get_supported_version)();  // must equal TORCHCOMM_BACKEND_ABI_VERSION
};
using CreateDynamicLoaderFn = DynamicLoaderInterface (*)();

using BackendFactory = std::function<std::shared_ptr<TorchCommBackend>()>;
using AllocatorFactory = std::function<std::shared_ptr<c10::Allocator>()>;

// The backends of this process. A backend registers itself when its module is loaded.
// Threads: any.
class TC_API TorchCommFactory {
 public:
  static TorchCommFactory& get();

  // Registers a backend under `name`. The first registration of a name wins; a later one is
  // ignored, with a warning unless it is `native`. A backend that installed() has loaded is an
  // exception: until its first use, a later registration replaces it. `native`: an instance costs
  // nothing before its init(), so one may be created only to read its capabilities.
  void register_backend(const std::string& name, const BackendFactory& factory, bool native = true);
  bool is_backend_registered(const std::string& name) const;
  std::vector<std::string> registered() const;  // sorted

  // Sets the function that loads every installed backend that is not loaded yet. `discover` must
  // not throw.
  void set_discovery(std::function<void()> discover);
  // Loads all installed backends and reads the capabilities of each native one, for error texts.
  // The first call is slow.
  // Returns: the capabilities by backend name. A backend whose capabilities cannot be read is left
  // out, with a warning.
  std::map<std::string, Capabilities> installed();

  // Creates and initializes a backend: the registered one, otherwise that of the library named by
  // backend_library_variable().
  // Blocks: as TorchCommBackend::init().
  // Throws: CommError(kBackendUnavailable) "failed to find backend ..." if there is neither, or
  // with the defect of the library: its path, a missing symbol, or the versions found and needed.
  // kInvalidArgument for a name that is too long, a timeout out of range, or a bad
  // TORCHCOMM_LOG_LEVEL. kUnsupported for enable_reconfigure if the backend has no reconfigure().
  // Also the errors of init().
  std::shared_ptr<TorchCommBackend> create_backend(const std::string& name, at::Device device,
                                                   const std::string& comm_name,
                                                   const CommOptions& options);

  // Registers the function that creates the allocator of a backend. The first registration of a
  // name wins. The function must not call this class, whose lock is held.
  void register_allocator_factory(const std::string& name, const AllocatorFactory& factory);
  // Returns: the allocator of that backend, created on first use.
  // Throws: CommError(kUnsupported) if the backend has none, or is not loaded.
  std::shared_ptr<c10::Allocator> get_allocator(const std::string& name);

 private:
  struct Registered {
    BackendFactory factory;
    bool native;
    bool discovered;  // loaded by installed() and not used since
  };

  std::shared_ptr<TorchCommBackend> instantiate(const std::string& name);

  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<std::string, Registered> backends_;
  std::function<void()> discover_;
  std::unordered_map<std::string, AllocatorFactory> allocator_factories_;
  std::unordered_map<std::string, std::shared_ptr<c10::Allocator>> allocators_;
};

// Returns: the environment variable that names the library of backend `name`:
// TORCHCOMMS_BACKEND_LIB_PATH_<NAME>, where <NAME> is in upper case with `_` for `-`.
TC_API std::string backend_library_variable(const std::string& name);

// Registers `factory` when the library that contains this object is loaded.
struct BackendRegistration {
  BackendRegistration(const std::string& name, const BackendFactory& factory) {
    TorchCommFactory::get().register_backend(name, factory);
  }
};

}  // namespace torch::comms
