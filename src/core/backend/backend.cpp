#include <torchcomms/backend.hpp>

#include <ATen/core/Tensor.h>
#include <torchcomms/base/error.hpp>

#include "core/backend/backend_diagnostics.hpp"
#include "core/backend/backend_suggestions.hpp"
#include "core/work/hook_call.hpp"

namespace torch::comms {

BackendDiagnostics::~BackendDiagnostics() = default;

namespace {

// `part`: the field of Capabilities that says whether a backend has the method; null if there is no
// such field.
[[noreturn]] void lacks(const TorchCommBackend& backend, const char* method,
                        bool Capabilities::* part = nullptr) {
  std::string suggestions;
  if (part != nullptr)
    suggestions = backends_supporting([part](const Capabilities& can) { return can.*part; });
  throw CommError(Errc::kUnsupported, std::string(method) + " not implemented by backend '" +
                                          std::string(backend.getBackendName()) + "'" +
                                          suggestions);
}

}  // namespace

std::vector<int> TorchCommBackend::getRanks() const {
  std::vector<int> ranks(static_cast<size_t>(std::max(getSize(), 0)));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  return ranks;
}

WorkPtr TorchCommBackend::gather_single(at::Tensor& output, const at::Tensor& input, int root,
                                        bool async_op, const GatherSingleOptions& options) {
  Tensors slots;
  if (getRank() == root) {
    const auto flat = output.view({-1});
    for (int i = 0; i < getSize(); ++i)
      slots.push_back(flat.narrow(0, i * input.numel(), input.numel()));
  }
  GatherOptions gather_options;
  gather_options.hints = options.hints;
  gather_options.timeout = options.timeout;
  return gather(slots, input, root, async_op, gather_options);
}

std::string_view TorchCommBackend::getBackendVersion() const { lacks(*this, "getBackendVersion"); }
std::shared_ptr<TorchCommWindow> TorchCommBackend::new_window(const std::optional<at::Tensor>&) {
  lacks(*this, "new_window", &Capabilities::windows);
}
std::shared_ptr<TorchCommWindow> TorchCommBackend::window_allocate(size_t, bool, size_t) {
  lacks(*this, "window_allocate", &Capabilities::windows);
}
TorchCommBackend::AllGatherPHandle TorchCommBackend::all_gather_p_init(
    at::Tensor&, const AllGatherPInitOptions&) {
  lacks(*this, "all_gather_p_init");
}
WorkPtr TorchCommBackend::all_gather_p_exec(AllGatherPHandle, const at::Tensor&, bool,
                                            const AllGatherPExecOptions&) {
  lacks(*this, "all_gather_p_exec");
}
void TorchCommBackend::all_gather_p_free(AllGatherPHandle) { lacks(*this, "all_gather_p_free"); }
void TorchCommBackend::setTimeout(std::chrono::milliseconds) { lacks(*this, "set_timeout"); }
void TorchCommBackend::setHints(const Hints&) { lacks(*this, "set_hints"); }
InitHandle TorchCommBackend::getInitHandle() const {
  lacks(*this, "getInitHandle", &Capabilities::reconfigure);
}
WorkPtr TorchCommBackend::reconfigure(const ReconfigureOptions&) {
  lacks(*this, "reconfigure", &Capabilities::reconfigure);
}
void TorchCommBackend::abort() { lacks(*this, "abort", &Capabilities::abort); }
void TorchCommBackend::tensor_register(const at::Tensor&) { lacks(*this, "tensor_register"); }
void TorchCommBackend::tensor_deregister(const at::Tensor&) { lacks(*this, "tensor_deregister"); }
int64_t TorchCommBackend::get_device_transport() { lacks(*this, "get_device_transport"); }

void TorchCommBackend::registerAbortHook(int64_t id, AbortHook hook) {
  std::lock_guard lock(hooks_mutex_);
  abort_hooks_[id] = std::move(hook);
}
void TorchCommBackend::unregisterAbortHook(int64_t id) {
  decltype(abort_hooks_)::node_type removed;  // outlives the lock, as in HookList
  std::lock_guard lock(hooks_mutex_);
  removed = abort_hooks_.extract(id);
}
void TorchCommBackend::registerGraphReplayHook(int64_t id, GraphReplayHook hook) {
  std::lock_guard lock(hooks_mutex_);
  graph_replay_hooks_[id] = std::move(hook);
}
void TorchCommBackend::unregisterGraphReplayHook(int64_t id) {
  decltype(graph_replay_hooks_)::node_type removed;
  std::lock_guard lock(hooks_mutex_);
  removed = graph_replay_hooks_.extract(id);
}

void TorchCommBackend::runAbortHooks() noexcept {
  std::map<int64_t, AbortHook> hooks;
  {
    std::lock_guard lock(hooks_mutex_);
    hooks = abort_hooks_;
  }
  for (const auto& [id, hook] : hooks) call_hook_noexcept("abort", hook);
}

void TorchCommBackend::fireGraphReplayHook(uint64_t graph_id, uint64_t replay_id, uint64_t stream,
                                           uint64_t index, std::string_view event) noexcept {
  std::map<int64_t, GraphReplayHook> hooks;
  {
    std::lock_guard lock(hooks_mutex_);
    hooks = graph_replay_hooks_;
  }
  for (const auto& [id, hook] : hooks)
    call_hook_noexcept("graph replay",
                       [&, &call = hook] { call(graph_id, replay_id, stream, index, event); });
}

}  // namespace torch::comms
