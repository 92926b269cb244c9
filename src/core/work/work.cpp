#include <torchcomms/work.hpp>

#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>
#include <torchcomms/base/error.hpp>

#include "base/concurrency/freelist.hpp"
#include "base/os/fork.hpp"
#include "core/work/hook_call.hpp"
#include "core/work/interruptible_call.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::milliseconds kWorkTick{50};  // between checks for Ctrl-C

}  // namespace

struct TorchWork::HookLists : base::FreelistAllocated<TorchWork::HookLists> {
  using List = c10::SmallVector<std::function<void()>, 1>;
  List start, end, wait_pre, wait_post, failure_observed;
  bool is_failure_observed = false;  // meetFailure() was called
};

TorchWork::TorchWork() : fork_generation_(static_cast<uint32_t>(base::fork_generation())) {}
TorchWork::~TorchWork() = default;

void TorchWork::waitBlocking() {
  throw CommError(Errc::kUnsupported, "waitBlocking not implemented for this work; use wait()");
}

TorchWork::HookLists& TorchWork::hookLists() {
  if (!hooks_) hooks_ = std::make_unique<HookLists>();
  has_hooks_.store(true, std::memory_order_release);
  return *hooks_;
}

void TorchWork::observe(std::unique_ptr<WorkObserver> observer) {
  {
    std::lock_guard lock(mutex_);
    if (!isTerminal(status()) && !observer_) {
      observer_ = std::move(observer);
      return;
    }
  }
  registerWorkEndHook(
      [this, second = std::shared_ptr(std::move(observer))] { second->ended(*this); });
}

void TorchWork::registerWorkStartHook(std::function<void()> hook) {
  {
    std::lock_guard lock(mutex_);
    if (status() == WorkStatus::NOT_STARTED) {
      hookLists().start.push_back(std::move(hook));
      return;
    }
  }
  hook();
}

void TorchWork::registerWorkEndHook(std::function<void()> hook) {
  {
    std::lock_guard lock(mutex_);
    if (!isTerminal(status())) {
      hookLists().end.push_back(std::move(hook));
      return;
    }
  }
  hook();
}

void TorchWork::registerWorkWaitPreHook(std::function<void()> hook) {
  std::lock_guard lock(mutex_);
  hookLists().wait_pre.push_back(std::move(hook));
}

void TorchWork::registerWorkWaitPostHook(std::function<void()> hook) {
  std::lock_guard lock(mutex_);
  hookLists().wait_post.push_back(std::move(hook));
}

void TorchWork::registerWorkMetHook(std::function<void()> hook) {
  {
    std::lock_guard lock(mutex_);
    auto& lists = hookLists();
    if (!lists.is_failure_observed) {
      lists.failure_observed.push_back(std::move(hook));
      return;
    }
  }
  hook();
}

void TorchWork::meetFailure() noexcept {
  HookLists::List hooks;
  {
    std::lock_guard lock(mutex_);
    if (!isTerminal(status()) || status() == WorkStatus::COMPLETED) return;
    auto& lists = hookLists();
    lists.is_failure_observed = true;
    hooks = lists.failure_observed;
  }
  for (const auto& hook : hooks) call_hook_noexcept("failure-observed", hook);
}

std::exception_ptr TorchWork::error() const {
  std::lock_guard lock(mutex_);
  return error_;
}

bool TorchWork::setStatus(WorkStatus to, std::exception_ptr error) {
  HookLists::List start, end;
  WorkObserver* seen_by = nullptr;
  const bool ends = isTerminal(to);
  bool starts = false;
  {
    std::lock_guard lock(mutex_);
    const auto from = status();
    if (!canMove(from, to)) return false;
    starts = from == WorkStatus::NOT_STARTED;
    error_ = std::move(error);
    status_.store(to, std::memory_order_release);
    seen_by = observer_.get();
    if (hooks_) {
      if (starts) start = std::move(hooks_->start);
      // A terminal work releases its start and end hooks, because they may hold an object that
      // holds the work.
      if (ends) end = std::move(hooks_->end);
    }
    ending_ = ends && (seen_by != nullptr || !end.empty());
  }
  if (starts && seen_by != nullptr) seen_by->started(*this);
  if (ends && seen_by != nullptr) seen_by->ended(*this);
  // A hook that throws neither prevents later hooks nor blocks a waiter.
  for (const auto& hook : start) call_hook_noexcept("work start", hook);
  for (const auto& hook : end) call_hook_noexcept("work end", hook);
  if (!ends) return true;
  if (seen_by != nullptr || !end.empty()) {
    std::lock_guard lock(mutex_);
    ending_ = false;
  }
  ended_.notify_all();
  return true;
}

void TorchWork::markCompleted(const c10::intrusive_ptr<c10::ivalue::Future>& future,
                              const std::vector<at::Tensor>& tensors) {
  setStatus(WorkStatus::COMPLETED);
  if (const auto failure = error())
    future->setError(failure);
  else
    future->markCompleted(c10::IValue(tensors));
}

void TorchWork::forceStatus(WorkStatus to) noexcept {
  {
    std::lock_guard lock(mutex_);
    status_.store(to, std::memory_order_release);
  }
  ended_.notify_all();
}

bool TorchWork::waitForTerminal(std::chrono::milliseconds limit) {
  if (!isTerminal(status()) && fork_generation_ != base::fork_generation())
    throw CommError(Errc::kForked,
                    "this work was started before fork(); only the parent process can wait for it");
  std::unique_lock lock(mutex_);
  const auto terminal = [this] { return isTerminal(status()) && !ending_; };
  if (limit == std::chrono::milliseconds::max()) {
    while (!ended_.wait_for(lock, kWorkTick, terminal)) {
      lock.unlock();
      check_interrupt_unwrapped();
      lock.lock();
    }
    return true;
  }
  return ended_.wait_for(lock, limit, terminal);
}

void TorchWork::rethrowIfFailed() const {
  if (const auto failure = error()) std::rethrow_exception(failure);
}

void TorchWork::runWaitHooks(bool before) {
  if (!has_hooks_.load(std::memory_order_acquire)) return;
  HookLists::List hooks;
  {
    std::lock_guard lock(mutex_);
    hooks = before ? hooks_->wait_pre : hooks_->wait_post;
    if (!before) hooks.append(hooks_->failure_observed.begin(), hooks_->failure_observed.end());
  }
  for (const auto& hook : hooks) hook();
}

void TorchWork::runWaitPreHooks() { runWaitHooks(true); }
void TorchWork::runWaitPostHooks() { runWaitHooks(false); }

void TorchWorkCompleted::wait() {
  runWaitPreHooks();
  runWaitPostHooks();
}

const WorkPtr& completedWork() {
  // Never destroyed, because works outlive static destruction in Python programs.
  static const auto* work = new WorkPtr(c10::make_intrusive<TorchWorkCompleted>());
  return *work;
}

TorchWorkThread::TorchWorkThread(std::function<void()> body)
    : thread_([this, body = std::move(body)] {
        setStatus(WorkStatus::INPROGRESS);
        try {
          body();
          setStatus(WorkStatus::COMPLETED);
        } catch (...) {
          setStatus(WorkStatus::ERROR, std::current_exception());
        }
      }) {}

TorchWorkThread::~TorchWorkThread() { thread_.join(); }

void TorchWorkThread::wait() {
  runWaitPreHooks();
  waitForTerminal(std::chrono::milliseconds::max());
  runWaitPostHooks();
  rethrowIfFailed();
}

}  // namespace torch::comms
