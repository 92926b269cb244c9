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
// What a backend in a shared library must have been built with: our interface's version and torch's
// minor.
#define TORCHCOMM_BACKEND_ABI_VERSION \
  "tc1+torch" TC_STRINGIFY(TORCH_VERSION_MAJOR) "." TC_STRINGIFY(TORCH_VERSION_MINOR)

// What the C function `create_dynamic_loader_<backend>` of a backend library returns, by value.
struct DynamicLoaderInterface {
  TorchCommBackend* (*new_comm)();
  void (*destroy_comm)(TorchCommBackend*);
  const char* (*get_supported_version)();  // must equal TORCHCOMM_BACKEND_ABI_VERSION
};
using CreateDynamicLoaderFn = DynamicLoaderInterface (*)();

using BackendFactory = std::function<std::shared_ptr<TorchCommBackend>()>;
using AllocatorFactory = std::function<std::shared_ptr<c10::Allocator>()>;

// Which backends this process has. Backends register themselves when their module loads. Any
// thread.
class TC_API TorchCommFactory {
 public:
  static TorchCommFactory& get();

  // The first registration of a name wins; a later one is ignored, with a warning where it is not
  // `native`. One that came with what installed() loaded counts from the first use of its backend
  // on: before, a later one replaces it. `native`: an instance costs nothing before its init(), so
  // that one may be made to ask what it can do.
  void register_backend(const std::string& name, const BackendFactory& factory, bool native = true);
  bool is_backend_registered(const std::string& name) const;
  std::vector<std::string> registered() const;  // sorted

  // `discover` loads every installed backend that is not loaded yet, and does not throw.
  void set_discovery(std::function<void()> discover);
  // What each installed native backend can do, by name. Slow at first: for error texts.
  std::map<std::string, Capabilities> installed();

  // A new, initialised backend: the registered one, else the library named by
  // TORCHCOMMS_BACKEND_LIB_PATH_<NAME>. Throws CommError(kBackendUnavailable) "failed to find
  // backend ..." when there is neither, or naming what is wrong with the library (path, missing
  // symbol, versions found and needed).
  std::shared_ptr<TorchCommBackend> create_backend(const std::string& name, at::Device device,
                                                   const std::string& comm_name,
                                                   const CommOptions& options);

  void register_allocator_factory(const std::string& name, const AllocatorFactory& factory);
  // The one allocator of that backend, made on first use. Throws CommError(kUnsupported) where
  // there is none.
  std::shared_ptr<c10::Allocator> get_allocator(const std::string& name);

 private:
  struct Registered {
    BackendFactory factory;
    bool native;
    bool discovered;  // by installed(), and not used since
  };

  std::shared_ptr<TorchCommBackend> instantiate(const std::string& name);

  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<std::string, Registered> backends_;
  std::function<void()> discover_;
  std::unordered_map<std::string, AllocatorFactory> allocator_factories_;
  std::unordered_map<std::string, std::shared_ptr<c10::Allocator>> allocators_;
};

// The environment variable that names the library of backend `name`:
// TORCHCOMMS_BACKEND_LIB_PATH_<NAME>.
TC_API std::string backend_library_variable(const std::string& name);

// Registers `factory` when the library that holds it is loaded.
struct BackendRegistration {
  BackendRegistration(const std::string& name, const BackendFactory& factory) {
    TorchCommFactory::get().register_backend(name, factory);
  }
};

}  // namespace torch::comms
