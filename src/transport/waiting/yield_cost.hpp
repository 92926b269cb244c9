#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::transport {

// Measures what it costs threads to yield their core, and decides whether they should sleep
// instead.
//
// A yield takes about 1 us where no other thread wants the core. Where another program computes on
// it, a yield takes a time slice of the system, some milliseconds. The system wakes a sleeper
// before such a program has used up its slice. So a yield that cost a slice is followed by a time
// without yields. This time is a multiple of the cost. The multiple doubles with each further
// slice, and is small again once yields have been cheap for long enough.
//
// Threads: any. Two threads that update it at the same time may lose a sample, which is harmless:
// the result is only advice.
class TC_API YieldCost {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds kExpensive{200};
  static constexpr int kMaxMultiple = 64;  // of the cost: longest time without yields
  static constexpr std::chrono::milliseconds kMaxHighTime{500};

  YieldCost() = default;
  virtual ~YieldCost() = default;
  YieldCost(const YieldCost&) = delete;
  YieldCost& operator=(const YieldCost&) = delete;
  // Returns: the object of this process's threads that wait in calls.
  static YieldCost& for_callers() noexcept;

  // Returns: whether a wait that finds nothing to do should sleep instead of yielding.
  bool is_high(Clock::time_point now) const noexcept {
    return now.time_since_epoch().count() < high_until_.load(std::memory_order_relaxed);
  }
  // Yields and records the cost. `now` is the time before the yield.
  void yield(Clock::time_point now, int slices) noexcept;
  // Records that a yield that ended at `now` has cost `cost`. `slices`: how many yields in a row
  // must be expensive before the cost is high.
  void add(Clock::time_point now, Clock::duration cost, int slices) noexcept;
  // Passes a short time, for a thread that waits for a lock: yields, or sleeps where the cost is
  // high.
  void pause(int slices) noexcept;
  virtual Clock::time_point now() const noexcept { return Clock::now(); }

 private:
  // These call the system; tests override them.
  virtual void yield_core() noexcept;
  virtual void sleep_a_moment() noexcept;

  void add_cheap(Clock::duration cost) noexcept;
  void add_expensive(Clock::time_point now, Clock::duration cost) noexcept;

  std::atomic<int> expensive_{0};          // expensive yields in a row
  std::atomic<Clock::rep> high_until_{0};  // a time of Clock
  std::atomic<Clock::rep> cost_{0};        // cost of the last expensive yield; 0: long ago
  std::atomic<Clock::rep> cheap_{0};       // time in cheap yields since then
  // The multiple that the last time without yields was of the cost.
  std::atomic<int> multiple_{0};
};

}  // namespace torch::comms::transport
