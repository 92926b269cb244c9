#include <torchcomms/factory.hpp>

#include <algorithm>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/os/log.hpp"
#include "core/backend/backend_library.hpp"
#include "core/backend/backend_suggestions.hpp"
#include "core/comm/comm_name.hpp"
#include "core/comm/error_context.hpp"

namespace torch::comms {
namespace {

// This thread is inside the discovery function of installed().
thread_local bool discovering = false;

class DiscoveryScope {
 public:
  DiscoveryScope() noexcept : before_(std::exchange(discovering, true)) {}
  ~DiscoveryScope() { discovering = before_; }
  DiscoveryScope(const DiscoveryScope&) = delete;
  DiscoveryScope& operator=(const DiscoveryScope&) = delete;

 private:
  bool before_;
};

}  // namespace

TorchCommFactory& TorchCommFactory::get() {
  // Never destroyed, because communicators in static storage may outlive it otherwise.
  static auto* factory = new TorchCommFactory;
  return *factory;
}

void TorchCommFactory::register_backend(const std::string& name, const BackendFactory& factory,
                                        bool native) {
  {
    std::lock_guard lock(mutex_);
    Registered entry{factory, native, discovering};
    const auto [known, is_new] = backends_.try_emplace(name, entry);
    if (is_new) return;
    if (known->second.discovered && !discovering) {
      known->second = std::move(entry);
      return;
    }
  }
  // A native backend that registers late silently gives way to a class that the program registered
  // in its place.
  if (!native)
    base::log(base::LogLevel::kWarning, "register_backend: backend '" + name +
                                            "' is registered already; the new class is ignored");
}

bool TorchCommFactory::is_backend_registered(const std::string& name) const {
  std::lock_guard lock(mutex_);
  return backends_.count(name) != 0;
}

std::vector<std::string> TorchCommFactory::registered() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  names.reserve(backends_.size());
  for (const auto& [name, entry] : backends_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

void TorchCommFactory::set_discovery(std::function<void()> discover) {
  std::lock_guard lock(mutex_);
  discover_ = std::move(discover);
}

std::map<std::string, Capabilities> TorchCommFactory::installed() {
  std::function<void()> discover;
  {
    std::lock_guard lock(mutex_);
    discover = discover_;
  }
  // Without the lock, because the modules that it loads register themselves.
  if (discover) {
    const DiscoveryScope here;
    discover();
  }
  std::map<std::string, BackendFactory> factories;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, entry] : backends_)
      if (entry.native) factories.emplace(name, entry.factory);
  }
  std::map<std::string, Capabilities> found;
  for (const auto& [name, factory] : factories) {
    try {
      found.emplace(name, factory()->capabilities());
    } catch (const std::exception& e) {
      base::log(base::LogLevel::kWarning,
                "cannot read the capabilities of backend '" + name + "': " + e.what());
    }
  }
  return found;
}

std::shared_ptr<TorchCommBackend> TorchCommFactory::instantiate(const std::string& name) {
  BackendFactory factory;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = backends_.find(name); found != backends_.end()) {
      factory = found->second.factory;
      found->second.discovered = false;
    }
  }
  if (factory) return factory();
  if (auto backend = load_backend_library(name)) return backend;

  std::string known;
  for (const auto& other : registered()) known += (known.empty() ? "" : ", ") + other;
  throw CommError(Errc::kBackendUnavailable,
                  "failed to find backend '" + name + "'; loaded backends: " + known +
                      "; to load another library, set " + backend_library_variable(name),
                  {.op = "new_comm"});
}

std::shared_ptr<TorchCommBackend> TorchCommFactory::create_backend(const std::string& name,
                                                                   at::Device device,
                                                                   const std::string& comm_name,
                                                                   const CommOptions& options) {
  require_name_length(comm_name, {.op = "new_comm", .comm = comm_name});
  require_valid_timeout(options.timeout, {.op = "new_comm", .comm = comm_name});
  base::validate_log_level();
  auto backend = instantiate(name);
  if (options.enable_reconfigure && !backend->supportsReconfigure())
    throw CommError(
        Errc::kUnsupported,
        "enable_reconfigure=True: reconfigure not implemented by backend '" + name + "'" +
            backends_supporting([](const Capabilities& other) { return other.reconfigure; }),
        {.op = "new_comm", .comm = comm_name});
  backend->init(device, comm_name, options);
  return backend;
}

void TorchCommFactory::register_allocator_factory(const std::string& name,
                                                  const AllocatorFactory& factory) {
  std::lock_guard lock(mutex_);
  allocator_factories_.try_emplace(name, factory);
}

std::shared_ptr<c10::Allocator> TorchCommFactory::get_allocator(const std::string& name) {
  std::lock_guard lock(mutex_);
  if (const auto found = allocators_.find(name); found != allocators_.end()) return found->second;
  const auto factory = allocator_factories_.find(name);
  if (factory == allocator_factories_.end())
    throw CommError(Errc::kUnsupported,
                    "backend '" + name + "' has no memory allocator, or is not loaded",
                    {.op = "get_mem_allocator"});
  return allocators_[name] = factory->second();
}

}  // namespace torch::comms
