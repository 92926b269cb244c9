#include "core/backend/backend_library.hpp"

#include <dlfcn.h>

#include <cctype>
#include <mutex>
#include <unordered_map>

#include <torchcomms/base/error.hpp>
#include <torchcomms/factory.hpp>

#include "base/os/env.hpp"

namespace torch::comms {
namespace {

DynamicLoaderInterface open_library(const std::string& name, const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw CommError(Errc::kBackendUnavailable, "backend '" + name + "': " + path + " (from " +
                                                   backend_library_variable(name) + ") " + why);
  };
  ::dlerror();
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) refuse(std::string("cannot be loaded: ") + ::dlerror());
  const std::string symbol = "create_dynamic_loader_" + name;
  const auto create = reinterpret_cast<CreateDynamicLoaderFn>(::dlsym(library, symbol.c_str()));
  if (create == nullptr) refuse("has no function " + symbol);
  const DynamicLoaderInterface loader = create();
  if (!loader.new_comm || !loader.destroy_comm || !loader.get_supported_version)
    refuse("returns a null function pointer from " + symbol);
  const std::string version = loader.get_supported_version();
  if (version != TORCHCOMM_BACKEND_ABI_VERSION)
    refuse("was built for the interface '" + version + "', this package needs '" +
           TORCHCOMM_BACKEND_ABI_VERSION + "'; rebuild it against this package");
  return loader;
}

}  // namespace

std::string backend_library_variable(const std::string& name) {
  std::string variable = "TORCHCOMMS_BACKEND_LIB_PATH_";
  for (const char c : name)
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

std::shared_ptr<TorchCommBackend> load_backend_library(const std::string& name) {
  static std::mutex mutex;  // guards the table below
  static auto* loaders = new std::unordered_map<std::string, DynamicLoaderInterface>;
  const auto path = base::env_text(backend_library_variable(name));
  DynamicLoaderInterface loader{};
  {
    std::lock_guard lock(mutex);
    if (const auto found = loaders->find(name); found != loaders->end()) {
      loader = found->second;
    } else {
      if (!path) return nullptr;
      loader = loaders->emplace(name, open_library(name, *path)).first->second;
    }
  }
  return {loader.new_comm(), loader.destroy_comm};
}

}  // namespace torch::comms
