#include "core/announcement.hpp"

#include <memory>
#include <utility>

#include "base/run_apart.hpp"

namespace torch::comms {
namespace {

thread_local bool runs_hooks = false;

}  // namespace

bool Announcement::is_here() noexcept { return runs_hooks; }

Announcement::Run Announcement::run() const {
  const std::lock_guard lock(mutex_);
  return run_;
}

void Announcement::begin(std::function<void()> hooks) {
  const auto ended = std::make_shared<std::promise<void>>();
  {
    const std::lock_guard lock(mutex_);
    if (run_.ended.valid()) return;
    run_ = {ended->get_future().share(), Clock::now() + kPatience};
  }
  base::run_apart([ended, hooks = std::move(hooks)] {
    const bool before = std::exchange(runs_hooks, true);
    hooks();
    runs_hooks = before;
    ended->set_value();
  });
}

void Announcement::await() const {
  const auto now = run();
  if (now.ended.valid() && !is_here()) now.ended.wait_until(now.until);
}

void Announcement::await_all() const {
  const auto now = run();
  if (now.ended.valid() && !is_here()) now.ended.wait();
}

bool Announcement::skip() {
  const std::lock_guard lock(mutex_);
  if (run_.ended.valid()) return true;
  std::promise<void> ended;
  ended.set_value();
  run_ = {ended.get_future().share(), Clock::now()};
  return false;
}

void Announcement::renew() {
  const std::lock_guard lock(mutex_);
  run_ = {};
}

}  // namespace torch::comms
