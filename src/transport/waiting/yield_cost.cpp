#include "transport/waiting/yield_cost.hpp"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace torch::comms::transport {
namespace {

// Ranks that share cores yield to each other; such a yield takes as long as the other rank works.
constexpr std::chrono::milliseconds kSlice{1};
constexpr std::chrono::microseconds kMoment{20};

}  // namespace

YieldCost& YieldCost::for_callers() noexcept {
  static YieldCost callers;
  return callers;
}

void YieldCost::yield_core() noexcept { ::sched_yield(); }
void YieldCost::sleep_a_moment() noexcept { std::this_thread::sleep_for(kMoment); }

void YieldCost::yield(Clock::time_point now, int slices) noexcept {
  yield_core();
  const auto back = this->now();
  add(back, back - now, slices);
}

void YieldCost::add(Clock::time_point now, Clock::duration cost, int slices) noexcept {
  const Clock::duration expensive = slices > 1 ? Clock::duration(kSlice) : kExpensive;
  if (cost < expensive)
    add_cheap(cost);
  else if (expensive_.fetch_add(1, std::memory_order_relaxed) + 1 >= slices)
    add_expensive(now, cost);
}

void YieldCost::pause(int slices) noexcept {
  const auto begin = now();
  if (is_high(begin))
    sleep_a_moment();
  else
    yield(begin, slices);
}

void YieldCost::add_cheap(Clock::duration cost) noexcept {
  if (expensive_.load(std::memory_order_relaxed) != 0)
    expensive_.store(0, std::memory_order_relaxed);
  const auto last = cost_.load(std::memory_order_relaxed);
  if (last == 0) return;
  const auto sum = cheap_.load(std::memory_order_relaxed) + cost.count();
  cheap_.store(sum, std::memory_order_relaxed);
  if (sum < 2 * last) return;
  cost_.store(0, std::memory_order_relaxed);
  multiple_.store(0, std::memory_order_relaxed);
}

void YieldCost::add_expensive(Clock::time_point now, Clock::duration cost) noexcept {
  const int times = std::clamp(2 * multiple_.load(std::memory_order_relaxed), 1, kMaxMultiple);
  const auto while_high = std::min<Clock::duration>(times * cost, kMaxHighTime);
  multiple_.store(times, std::memory_order_relaxed);
  cost_.store(cost.count(), std::memory_order_relaxed);
  cheap_.store(0, std::memory_order_relaxed);
  high_until_.store((now + while_high).time_since_epoch().count(), std::memory_order_relaxed);
}

}  // namespace torch::comms::transport
