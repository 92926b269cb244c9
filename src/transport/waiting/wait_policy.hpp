#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"
#include "transport/waiting/cpu_set.hpp"
#include "transport/waiting/yield_cost.hpp"

namespace torch::comms::transport {

class CoreBalancer;
class Transport;

using Deadline = std::chrono::steady_clock::time_point;

// The abort of a communicator: it ends every wait that watches it. One signal may serve several
// transports.
class TC_API AbortSignal {
 public:
  // Throws: CommError(kResourceExhausted) if no descriptor is left.
  AbortSignal();
  // Raises the signal. It does not block.
  // Threads: any; signal handlers, too.
  void raise() noexcept;
  bool is_raised() const noexcept { return word_.load(std::memory_order_acquire) != 0; }
  // Returns: a descriptor that is readable from raise() on.
  int event_fd() const noexcept { return event_.get(); }

 private:
  std::atomic<uint32_t> word_{0};
  base::FileDescriptor event_;
};

// How a wait passes the time: it spins, then yields its core, then sleeps until a peer or a socket
// wakes it. Waking a sleeper costs 30-50 us on the other core, and a yield about 1 us; a spinning
// reader sees a store after 0.1-0.3 us. Where other programs use the cores a yield costs
// milliseconds: there a wait sleeps right after it has spun (YieldCost).
struct WaitPolicy {
  int spins = 0;                              // polls before the first yield
  std::chrono::microseconds awake_time{100};  // without progress, before a sleep
  // The longest time without progress before a sleep, where IdleGaps finds that staying awake pays
  // off.
  std::chrono::microseconds max_awake_time{1500};
  int max_expensive_yields = 1;  // expensive yields in a row before their cost is high
  // Consulted before each yield; nullptr: none. Must outlive the policy.
  CoreBalancer* core_balancer = nullptr;
  // Consulted and updated by each yield; nullptr: YieldCost::for_callers(). Must outlive the
  // policy.
  YieldCost* yield_cost = nullptr;
  // Returns: the policy for `ranks` ranks that share `cores` cores. Spinning is free if each rank
  // has a core; otherwise a spinning rank keeps its peers from answering.
  static TC_API WaitPolicy for_ranks(int ranks, int cores) noexcept;
  // Returns: the policy for `ranks` ranks that share the cores this thread may run on.
  static WaitPolicy for_ranks(int ranks) noexcept {
    return for_ranks(ranks, CpuSet::of_this_thread().count());
  }
};

// Estimates how long a wait should stay awake, from how long earlier waits were without progress.
// Gaps that end within a millisecond, as of a peer that copies some megabytes, would otherwise wake
// a sleeper for each message. Longer gaps, for which a wait was awake in vain, lower the estimate,
// so that after a few of them waits sleep early.
//
// Threads: any. Two threads that add at the same time may lose a gap, which is harmless: the result
// is only advice.
class TC_API IdleGaps {
 public:
  static constexpr std::chrono::microseconds kMaxGap{1000};
  void add(std::chrono::nanoseconds gap) noexcept;
  std::chrono::nanoseconds awake_time(std::chrono::nanoseconds least) const noexcept;

 private:
  std::atomic<int64_t> typical_ns_{0};
};

// The longest sleep: a lost wake-up delays a wait but does not hang it.
inline constexpr std::chrono::milliseconds kMaxSleep{250};

// The state of one wait in its policy. The wait calls step() after each check of its condition that
// found nothing.
class TC_API Backoff {
 public:
  explicit Backoff(const WaitPolicy& policy) noexcept : policy_(policy) {}

  void reset() noexcept {
    if (!is_spinning()) end_gap();
    idle_ = 0;
  }
  // Passes a short time awake.
  // Returns: true when the wait should sleep instead.
  bool step() noexcept;
  // Passes a short time where a sleep must not begin yet, or while another thread holds a lock.
  void pause() const noexcept;
  // Returns: whether the wait has only spun so far; then it has not read the clock.
  bool is_spinning() const noexcept { return idle_ <= policy_.spins; }

 private:
  void end_gap() const noexcept;

  WaitPolicy policy_;
  int idle_ = 0;  // steps since something moved
  std::chrono::steady_clock::time_point idle_since_{};
};

// How a wait, or one step of it, has ended.
enum class WaitResult : uint8_t { kDone, kTimeout, kAborted };

// Runs one wait, from its first poll to its end. The waiting thread owns the transports and makes
// their progress. For a condition other than a request:
//     Waiter waiter(links, abort, deadline, policy);
//     while (!condition())
//       if (const auto end = waiter.step(); end != WaitResult::kDone) return end;
class TC_API Waiter {
 public:
  Waiter(std::span<Transport* const> links, const AbortSignal& abort, Deadline deadline,
         const WaitPolicy& policy) noexcept
      : links_(links), abort_(abort), deadline_(deadline), backoff_(policy) {}
  ~Waiter() { disarm(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Makes progress or passes a short time; called once between two checks of the condition. A sleep
  // is announced in one step and begins in the next, so that no change in between is missed. When
  // step() returns kAborted, the requests of the transports are done.
  // Returns: kDone to continue the wait; kTimeout or kAborted to end it.
  // Blocks: until the deadline, the abort or kMaxSleep at most.
  WaitResult step() noexcept;
  // Returns: how often the wait has slept.
  int sleep_count() const noexcept { return sleeps_; }

 private:
  bool progress() noexcept;
  void arm() noexcept;
  void disarm() noexcept;
  void sleep() noexcept;

  std::span<Transport* const> links_;
  const AbortSignal& abort_;
  Deadline deadline_;
  Backoff backoff_;
  size_t armed_ = 0;  // transports whose prepare_sleep() was called
  unsigned steps_ = 0;
  int sleeps_ = 0;
};

// Waits until `condition()` holds. The condition is checked after each step and must be cheap.
// Returns: kDone, kTimeout or kAborted.
template <class Condition>
WaitResult wait_until(std::span<Transport* const> links, const AbortSignal& abort,
                      Deadline deadline, const WaitPolicy& policy, const Condition& condition) {
  Waiter waiter(links, abort, deadline, policy);
  while (!condition())
    if (const auto end = waiter.step(); end != WaitResult::kDone)
      return condition() ? WaitResult::kDone : end;
  return WaitResult::kDone;
}

}  // namespace torch::comms::transport
