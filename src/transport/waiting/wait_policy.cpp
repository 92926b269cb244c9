#include "transport/waiting/wait_policy.hpp"

#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <torchcomms/base/error.hpp>

#include "transport/transport.hpp"
#include "transport/waiting/core_balancer.hpp"

namespace torch::comms::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLinks = 15;  // a wait on more transports never sleeps

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

IdleGaps gaps;  // shared by all waits of the process

YieldCost& yields_of(const WaitPolicy& policy) noexcept {
  return policy.yield_cost != nullptr ? *policy.yield_cost : YieldCost::for_callers();
}

}  // namespace

AbortSignal::AbortSignal() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!event_)
    throw CommError(Errc::kResourceExhausted, std::string("eventfd: ") + std::strerror(errno));
}

void AbortSignal::raise() noexcept {
  word_.store(1, std::memory_order_release);
  const uint64_t one = 1;
  // The write fails only if the event is readable already.
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

WaitPolicy WaitPolicy::for_ranks(int ranks, int cores) noexcept {
  // About 2 us of polls, longer than an exchange between two running ranks takes. Where both ranks
  // are on one core, or other programs use the cores, every further poll wastes time.
  if (ranks <= cores) return {.spins = 100};
  // Ranks that share a core lose a time slice now and then, with many short yields between.
  return {.max_expensive_yields = 4};
}

void IdleGaps::add(std::chrono::nanoseconds gap) noexcept {
  const int64_t typical = typical_ns_.load(std::memory_order_relaxed), now = gap.count();
  const int64_t next = gap > kMaxGap ? typical / 2 : std::max(now, typical - typical / 16);
  if (next != typical) typical_ns_.store(next, std::memory_order_relaxed);
}

std::chrono::nanoseconds IdleGaps::awake_time(std::chrono::nanoseconds least) const noexcept {
  const std::chrono::nanoseconds typical(typical_ns_.load(std::memory_order_relaxed));
  return std::max(least, typical + typical / 2);
}

void Backoff::end_gap() const noexcept { gaps.add(yields_of(policy_).now() - idle_since_); }

void Backoff::pause() const noexcept { yields_of(policy_).pause(policy_.max_expensive_yields); }

bool Backoff::step() noexcept {
  if (++idle_ <= policy_.spins) {
    relax();
    return false;
  }
  auto& yields = yields_of(policy_);
  const auto now = yields.now();
  if (idle_ == policy_.spins + 1) idle_since_ = now;
  const auto awake = std::min<std::chrono::nanoseconds>(gaps.awake_time(policy_.awake_time),
                                                        policy_.max_awake_time);
  if (now - idle_since_ >= awake || yields.is_high(now)) return true;
  if (policy_.core_balancer != nullptr) policy_.core_balancer->rebalance(now);
  yields.yield(now, policy_.max_expensive_yields);
  return false;
}

bool Waiter::progress() noexcept {
  bool moved = false;
  for (auto* link : links_) moved |= link->progress();
  return moved;
}

WaitResult Waiter::step() noexcept {
  const bool moved = progress();
  // Reading the clock costs as much as a poll. Traffic of other operations must not delay the
  // deadline.
  if (++steps_ % 64 == 0 && Clock::now() >= deadline_) return WaitResult::kTimeout;
  if (moved) {
    backoff_.reset();
    disarm();
    return WaitResult::kDone;
  }
  if (abort_.is_raised()) {
    progress();  // the abort may be newer than the progress above; this ends the requests in flight
    return WaitResult::kAborted;
  }
  const bool should_sleep = backoff_.step();
  if (!backoff_.is_spinning() && Clock::now() >= deadline_) return WaitResult::kTimeout;
  if (!should_sleep) return WaitResult::kDone;
  if (armed_ == 0)
    arm();  // the caller checks its condition once more before the sleep
  else
    sleep();
  return WaitResult::kDone;
}

void Waiter::arm() noexcept {
  bool can_sleep = links_.size() <= kMaxLinks;
  while (can_sleep && armed_ < links_.size()) can_sleep = links_[armed_++]->prepare_sleep();
  if (can_sleep) return;
  disarm();
  backoff_.pause();
}

void Waiter::disarm() noexcept {
  for (; armed_ > 0; --armed_) links_[armed_ - 1]->finish_sleep();
}

void Waiter::sleep() noexcept {
  std::array<pollfd, kMaxLinks + 1> polled;
  size_t count = 0;
  polled[count++] = {abort_.event_fd(), POLLIN, 0};
  for (const auto* link : links_) polled[count++] = {link->event_fd(), POLLIN, 0};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
  const auto bounded = std::clamp<int64_t>(left.count(), 0, kMaxSleep.count());
  ::poll(polled.data(), count, static_cast<int>(bounded));
  ++sleeps_;
  disarm();
}

}  // namespace torch::comms::transport
