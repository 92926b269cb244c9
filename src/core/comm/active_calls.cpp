#include "core/comm/active_calls.hpp"

#include <chrono>
#include <optional>

namespace torch::comms {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kActiveCallsPollInterval{20};
constexpr std::chrono::seconds kInterpreterExitGrace{1};

thread_local const ActiveCalls::CallScope* innermost_call = nullptr;

}  // namespace

ActiveCalls::CallScope::CallScope(ActiveCalls& active_calls) noexcept
    : calls_(active_calls), outer_(innermost_call) {
  innermost_call = this;
  // The count rises before the caller checks whether the communicator is usable: either the caller
  // sees finalize(), or finalize() sees the call.
  calls_.active_.fetch_add(1, std::memory_order_seq_cst);
}

ActiveCalls::CallScope::~CallScope() {
  innermost_call = outer_;
  calls_.active_.fetch_sub(1, std::memory_order_seq_cst);
  if (!calls_.has_waiter_.load(std::memory_order_seq_cst)) return;
  const std::lock_guard lock(calls_.mutex_);
  calls_.call_ended_.notify_all();
}

int ActiveCalls::count_of_this_thread() const noexcept {
  int count = 0;
  for (const auto* here = innermost_call; here != nullptr; here = here->outer_)
    count += &here->calls_ == this ? 1 : 0;
  return count;
}

bool ActiveCalls::wait_until_idle(const std::function<void()>& check,
                                  const std::function<bool()>& ends) {
  const int own = count_of_this_thread();
  has_waiter_.store(true, std::memory_order_seq_cst);
  std::unique_lock lock(mutex_);
  const auto alone = [&] { return active_.load(std::memory_order_seq_cst) <= own; };
  std::optional<Clock::time_point> until;
  while (!call_ended_.wait_for(lock, kActiveCallsPollInterval, alone)) {
    lock.unlock();
    check();
    if (!until && ends()) until = Clock::now() + kInterpreterExitGrace;
    if (until && Clock::now() >= *until) return false;
    lock.lock();
  }
  return true;
}

}  // namespace torch::comms
