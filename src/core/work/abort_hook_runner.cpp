#include "core/work/abort_hook_runner.hpp"

#include <memory>
#include <utility>

#include "base/concurrency/executor.hpp"

namespace torch::comms {
namespace {

thread_local bool runs_hooks = false;

}  // namespace

bool AbortHookRunner::in_hook() noexcept { return runs_hooks; }

AbortHookRunner::AbortHookRun AbortHookRunner::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

void AbortHookRunner::start(std::function<void()> hooks) {
  const auto ended = std::make_shared<std::promise<void>>();
  {
    const std::lock_guard lock(mutex_);
    if (run_.done.valid()) return;
    run_ = {ended->get_future().share(), Clock::now() + kHookTimeout};
  }
  base::Executor::unshared().run_or_inline([ended, hooks = std::move(hooks)] {
    const bool before = std::exchange(runs_hooks, true);
    hooks();
    runs_hooks = before;
    ended->set_value();
  });
}

void AbortHookRunner::wait() const {
  const auto now = run();
  if (now.done.valid() && !in_hook()) now.done.wait_until(now.deadline);
}

void AbortHookRunner::wait_until_done() const {
  const auto now = run();
  if (now.done.valid() && !in_hook()) now.done.wait();
}

bool AbortHookRunner::cancel() {
  const std::lock_guard lock(mutex_);
  if (run_.done.valid()) return true;
  std::promise<void> ended;
  ended.set_value();
  run_ = {ended.get_future().share(), Clock::now()};
  return false;
}

void AbortHookRunner::rearm() {
  const std::lock_guard lock(mutex_);
  run_ = {};
}

}  // namespace torch::comms
