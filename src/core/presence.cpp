#include "core/presence.hpp"

#include <chrono>
#include <optional>

namespace torch::comms {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPresenceTick{20};
constexpr std::chrono::seconds kAtTheEnd{1};

thread_local const Presence::Here* innermost_call = nullptr;

}  // namespace

Presence::Here::Here(Presence& presence) noexcept : presence_(presence), outer_(innermost_call) {
  innermost_call = this;
  // Before the caller looks whether he may be here: either he sees that he may not, or he is seen.
  presence_.inside_.fetch_add(1, std::memory_order_seq_cst);
}

Presence::Here::~Here() {
  innermost_call = outer_;
  presence_.inside_.fetch_sub(1, std::memory_order_seq_cst);
  if (!presence_.is_awaited_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard lock(presence_.mutex_);
  presence_.left_.notify_all();
}

int Presence::of_this_thread() const noexcept {
  int count = 0;
  for (const auto* here = innermost_call; here != nullptr; here = here->outer_)
    count += &here->presence_ == this ? 1 : 0;
  return count;
}

bool Presence::await_others(const std::function<void()>& check, const std::function<bool()>& ends) {
  const int own = of_this_thread();
  is_awaited_.store(true, std::memory_order_seq_cst);
  std::unique_lock lock(mutex_);
  const auto alone = [&] { return inside_.load(std::memory_order_seq_cst) <= own; };
  std::optional<Clock::time_point> until;
  while (!left_.wait_for(lock, kPresenceTick, alone)) {
    lock.unlock();
    check();
    if (!until && ends()) until = Clock::now() + kAtTheEnd;
    if (until && Clock::now() >= *until) return false;
    lock.lock();
  }
  return true;
}

}  // namespace torch::comms
