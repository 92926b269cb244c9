#include <cstdlib>
#include <utility>

#include <c10/util/ScopeExit.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/comm.hpp>
#include <torchcomms/factory.hpp>
#include <torchcomms/health_check.hpp>

#include "base/op_order.hpp"
#include "base/os/fork.hpp"
#include "base/os/log.hpp"
#include "core/backend/backend_diagnostics.hpp"
#include "core/comm/active_calls.hpp"
#include "core/comm/comm_hooks.hpp"
#include "core/comm/error_context.hpp"
#include "core/observe/init_record.hpp"
#include "core/observe/operation_observer.hpp"
#include "core/observe/operation_record.hpp"
#include "core/rendezvous/global_rank.hpp"
#include "core/staging/staging.hpp"
#include "core/work/interruptible_call.hpp"
#include "core/work/unobserved_failure.hpp"
#include "tracing/recorder.hpp"

// The life of a communicator from creation to finalize(): its members, its state checks, and its
// hooks.
namespace torch::comms {
namespace {

std::atomic<int64_t> next_hook_id{0};

}  // namespace

std::shared_ptr<TorchComm> new_comm(const std::string& backend, at::Device device,
                                    const std::string& name, const CommOptions& options) {
  const InitRecord init_record(name, backend, options);
  return TorchComm::wrap(TorchCommFactory::get().create_backend(backend, device, name, options),
                         backend);
}

std::shared_ptr<TorchComm> TorchComm::wrap(std::shared_ptr<TorchCommBackend> backend,
                                           std::string backend_name) {
  return std::shared_ptr<TorchComm>(new TorchComm(std::move(backend), std::move(backend_name)));
}

TorchComm::TorchComm(std::shared_ptr<TorchCommBackend> backend, std::string backend_name,
                     const TorchComm* parent)
    : backend_(std::move(backend)),
      backend_name_(std::move(backend_name)),
      capabilities_(backend_->capabilities()),
      name_(backend_->getCommName()),
      fork_generation_(base::fork_generation()),
      active_calls_(std::make_unique<ActiveCalls>()),
      hooks_(std::make_shared<Hooks>()) {
  if (parent)
    global_rank_ = parent->membership_ ? -1 : parent->global_rank_;
  else if (backend_->isInitialized())
    global_rank_ = global_rank_if_subset(backend_->getSize());
  refreshMembership();
  const auto& options = backend_->getOptions();
  is_reconfigurable_ = options.enable_reconfigure;
  if (capabilities_.ends_process && !is_reconfigurable_)
    failure_guard_ = std::make_shared<UnobservedFailureGuard>(
        name_,
        options.abort_process_on_timeout_or_error ? abort_grace() : UnobservedFailureGuard::kNever,
        [weak = std::weak_ptr<TorchCommBackend>(backend_)] {
          TorchCommsHealthCheck::get().setEnding();
          if (const auto backend = weak.lock()) backend->announceAbort();
        },
        [] { std::abort(); });
  if (auto* const diagnostics = dynamic_cast<BackendDiagnostics*>(backend_.get());
      diagnostics && failure_guard_)
    diagnostics->set_unowned_failure_callback(
        [weak = std::weak_ptr<UnobservedFailureGuard>(failure_guard_)](TorchWork& work) {
          if (const auto guard = weak.lock()) guard->arm(work);
        });
}

TorchComm::~TorchComm() {
  if (isForked()) {
    // A forked child has no threads of the backend and must not touch the parent's connections, so
    // the object leaks instead of being destroyed.
    static_cast<void>(new std::shared_ptr<TorchCommBackend>(std::move(backend_)));
    return;
  }
  if (failure_guard_)
    failure_guard_->mark_observed();  // the program can no longer call this communicator
  tracing::process_ring().end_communicator(record_id_, finalized_);
  if (!finalized_)
    base::log(base::LogLevel::kInfo,
              "communicator '" + name_ + "' is destroyed without finalize()");
}

void TorchComm::refreshMembership(std::optional<int64_t> uuid) {
  const bool connected = backend_->isInitialized();
  rank_ = connected ? backend_->getRank() : -1;
  size_ = connected ? backend_->getSize() : -1;
  membership_ = connected ? uuid : std::nullopt;
  unconnected_reason_.clear();
  // New members have counted no operations, so all members restart their counters.
  if (order_) tracing::process_ring().end_communicator(record_id_, true);
  order_ = std::make_unique<base::OpOrder>();
  auto* const diagnostics = dynamic_cast<BackendDiagnostics*>(backend_.get());
  record_id_ =
      tracing::record_communicator({.name = name_,
                                    .backend = backend_name_,
                                    .rank = rank_,
                                    .size = size_,
                                    .members = globalRanks(),
                                    .membership = membership_,
                                    .identity = diagnostics ? diagnostics->comm_identity() : 0,
                                    .global_rank = global_rank_.value_or(-1)},
                                   record_vocabulary());
  hooks_->observers.remove(std::exchange(hooks_->backend_observer, 0));
  if (auto observer = diagnostics ? diagnostics->operation_observer() : nullptr)
    hooks_->backend_observer = hooks_->observers.add(std::move(observer));
}

std::vector<int> TorchComm::globalRanks() const {
  // Ranks after a reconfigure() do not correspond to global ranks.
  if (size_ < 0 || membership_ || global_rank_) return {};
  return backend_->getRanks();
}

bool TorchComm::isForked() const { return fork_generation_ != base::fork_generation(); }

void TorchComm::requireOwnProcess(std::string_view op) const {
  if (!isForked()) return;
  throw CommError(Errc::kForked,
                  "this communicator was made before fork(); make a new one in the child",
                  {.op = std::string(op), .comm = name_, .rank = rank_});
}

void TorchComm::requireNotFinalized(std::string_view op) const {
  requireOwnProcess(op);
  if (isFinalized())
    throw CommError(Errc::kFinalized, "the communicator is not initialized: finalize() was called",
                    {.op = std::string(op), .comm = name_, .rank = rank_});
}

void TorchComm::requireUsable(std::string_view op) const {
  requireNotFinalized(op);
  if (size_ < 0) refuseUnconnected(op);
}

void TorchComm::refuseUnconnected(std::string_view op) const {
  if (!capabilities_.reconfigure) {  // the backend throws the reason why it has no rank
    backend_->getRank();
    backend_->getSize();
  }
  throw CommError(
      Errc::kFinalized,
      "the communicator is not initialized: call reconfigure() first" + unconnected_reason_,
      {.op = std::string(op), .comm = name_, .rank = rank_});
}

TorchComm::BackendFacts TorchComm::getBackendFacts() const {
  const ActiveCalls::CallScope here(*active_calls_);
  BackendFacts facts;
  if (isFinalized()) return facts;
  facts.links = backend_->links();
  facts.algorithms = backend_->algorithms();
  if (const auto* const diagnostics = dynamic_cast<const BackendDiagnostics*>(backend_.get())) {
    facts.memory = diagnostics->memory_usage();
    facts.notes = diagnostics->describe_entries();
  }
  return facts;
}

std::string TorchComm::standing() const {
  if (isForked()) return "made before fork()";
  if (isFinalized()) return "finalized";
  if (size_ < 0) return "not connected";
  const auto place = "rank " + std::to_string(rank_) + " of " + std::to_string(size_);
  return backend_->isAborted() ? place + ", ended" : place;
}

void TorchComm::abandon_backend() {
  finalized_ = false;  // nothing was released
  static_cast<void>(new std::shared_ptr<TorchCommBackend>(backend_));
  static_cast<void>(staging_.release());
  base::log(base::LogLevel::kInfo,
            "communicator '" + name_ +
                "' is not released before process exit: a thread is still inside one of its calls");
}

void TorchComm::finalize() {
  if (isForked()) return;
  const auto require_first = [this](bool is_finalized) {
    if (is_finalized && capabilities_.final_finalize)
      throw CommError(Errc::kFinalized, "the communicator is already finalized",
                      {.op = "finalize", .comm = name_, .rank = rank_});
  };
  require_first(finalized_);
  if (!hooks_->pre.empty()) hooks_->pre.call(kFinalizeOpId, PreHookArgs(Finalize{}));
  // The flag is set before the backend's finalize(): the communicator is finalized even if that
  // fails. Another thread, or a hook, may have called finalize() first.
  require_first(finalized_.exchange(true));
  try {
    if (!active_calls_->wait_until_idle(check_interrupt, interpreter_is_exiting))
      return abandon_backend();
  } catch (const Interrupted& e) {
    finalized_ = false;  // nothing was released
    e.rethrow_cause();
  }
  // Runs on every way out: no operation follows, and a hook may hold this communicator.
  const auto hooks_end = c10::make_scope_exit([this] {
    if (capabilities_.final_finalize) hooks_->clear_operation_hooks();
  });
  tracing::process_ring().end_communicator(record_id_, true);
  const auto pending = failure_guard_ ? failure_guard_->mark_observed() : nullptr;
  if (staging_) staging_->drain();
  backend_->finalize();
  staging_.reset();
  if (!hooks_->post.empty()) hooks_->post.call(kFinalizeOpId, PostHookArgs(FinalizePostHookArgs{}));
  if (pending) std::rethrow_exception(pending);
}

InitHandle TorchComm::getInitHandle() const {
  requireOwnProcess("get_init_handle");
  return backend_->getInitHandle();
}
WorkPtr TorchComm::reconfigure(const ReconfigureOptions& options) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireNotFinalized("reconfigure");
  flush_staging();
  WorkPtr work;
  try {
    work = backend_->reconfigure(options);
  } catch (const CommError&) {
    throw;  // a wrong call changed nothing
  } catch (...) {
    refreshMembership(options.uuid);  // the call was interrupted, and the members may have changed
    throw;
  }
  refreshMembership(options.uuid);
  if (const auto error = work->error()) try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      unconnected_reason_ = std::string("; the last reconfigure() failed: ") + e.what();
    }
  return work;
}
void TorchComm::abort() {
  if (isForked()) return;  // the parent process owns everything
  if (failure_guard_) failure_guard_->mark_observed();
  backend_->abort();
}
bool TorchComm::isAbortSupported() const { return backend_->isAbortSupported(); }
bool TorchComm::isAborted() const { return backend_->isAborted(); }
void TorchComm::setTimeout(std::chrono::milliseconds timeout) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireNotFinalized("set_timeout");
  flush_staging();
  require_valid_timeout(timeout,
                        {.op = "set_timeout", .comm = std::string(getCommName()), .rank = rank_});
  backend_->setTimeout(timeout);
}
void TorchComm::setHints(const Hints& hints) {
  const ActiveCalls::CallScope here(*active_calls_);
  requireNotFinalized("set_hints");
  flush_staging();
  backend_->setHints(hints);
}

std::unique_ptr<RemovableHandle> TorchComm::registerPreHook(PreHook hook) {
  const auto id = hooks_->pre.add(std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<Hooks>(hooks_), id] {
    if (const auto hooks = weak.lock()) hooks->pre.remove(id);
  });
}
std::unique_ptr<RemovableHandle> TorchComm::registerPostHook(PostHook hook) {
  const auto id = hooks_->post.add(std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<Hooks>(hooks_), id] {
    if (const auto hooks = weak.lock()) hooks->post.remove(id);
  });
}
std::unique_ptr<RemovableHandle> register_observer(TorchComm& comm,
                                                   std::shared_ptr<OperationObserver> observer) {
  const auto id = comm.hooks_->observers.add(std::move(observer));
  return RemovableHandle::create([weak = std::weak_ptr<TorchComm::Hooks>(comm.hooks_), id] {
    if (const auto hooks = weak.lock()) hooks->observers.remove(id);
  });
}
std::unique_ptr<RemovableHandle> TorchComm::registerAbortHook(AbortHook hook) {
  const auto id = next_hook_id.fetch_add(1);
  backend_->registerAbortHook(id, std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<TorchCommBackend>(backend_), id] {
    if (const auto backend = weak.lock()) backend->unregisterAbortHook(id);
  });
}
std::unique_ptr<RemovableHandle> TorchComm::registerGraphReplayHook(GraphReplayHook hook) {
  const auto id = next_hook_id.fetch_add(1);
  backend_->registerGraphReplayHook(id, std::move(hook));
  return RemovableHandle::create([weak = std::weak_ptr<TorchCommBackend>(backend_), id] {
    if (const auto backend = weak.lock()) backend->unregisterGraphReplayHook(id);
  });
}

}  // namespace torch::comms
