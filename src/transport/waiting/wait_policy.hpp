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

// "StopReason", from any thread: every wait that watches it ends. One may serve several transports.
class TC_API AbortSignal {
 public:
  // Throws CommError(kResourceExhausted) without a descriptor left.
  AbortSignal();
  // Returns at once. Any thread, and signal handlers.
  void raise() noexcept;
  bool is_raised() const noexcept { return word_.load(std::memory_order_acquire) != 0; }
  // Readable from raise() on.
  int event_fd() const noexcept { return event_.get(); }

 private:
  std::atomic<uint32_t> word_{0};
  base::FileDescriptor event_;
};

// How a wait passes the time: it spins, then gives its core away in turns, then sleeps until a
// peer or a socket wakes it. Waking a sleeper costs 30-50 us on the other core, yielding about
// 1 us, a spinning reader sees a store after 0.1-0.3 us. Where other programs have the cores a
// yield costs milliseconds: there a wait sleeps after it has spun (YieldCost).
struct WaitPolicy {
  int spins = 0;                                   // polls before the first yield
  std::chrono::microseconds awake_time{100};       // with nothing moving, before it sleeps
  std::chrono::microseconds max_awake_time{1500};  // the same where that is worth it: Gaps
  int max_expensive_yields = 1;  // expensive yields in a row, before their cost is high
  CoreBalancer* core_balancer =
      nullptr;  // looked at before each yield; where there is one, it outlives the policy
  YieldCost* yield_cost = nullptr;  // the same, asked and told; nullptr: YieldCost::for_callers()
  // For `ranks` that share so many cores: where each has a core, spinning is free; where they
  // share, whoever spins keeps the others from answering.
  static TC_API WaitPolicy for_ranks(int ranks, int cores) noexcept;
  // For so many that share the cores this thread may run on.
  static WaitPolicy for_ranks(int ranks) noexcept {
    return for_ranks(ranks, CpuSet::of_this_thread().count());
  }
};

// How long nothing moved in waits of before, and so how long it is worth to stay awake: where gaps
// end within a millisecond, as of a peer that copies some megabytes, a sleeper would be woken for
// each. Gaps that were longer, for which it was awake in vain, are forgotten after a few.
//
// Threads: any. Two at once may lose one's gap: it is only advice.
class TC_API IdleGaps {
 public:
  static constexpr std::chrono::microseconds kMaxGap{1000};
  void add(std::chrono::nanoseconds gap) noexcept;
  std::chrono::nanoseconds awake_time(std::chrono::nanoseconds least) const noexcept;

 private:
  std::atomic<int64_t> typical_ns_{0};
};

// A sleep ends after so long without any reason, too: a wake-up that got lost delays a wait, and
// does not hang it.
inline constexpr std::chrono::milliseconds kMaxSleep{250};

// Where a wait is in its policy: asked after each look at the condition that found nothing.
class TC_API Backoff {
 public:
  explicit Backoff(const WaitPolicy& policy) noexcept : policy_(policy) {}

  void reset() noexcept {
    if (!is_spinning()) end_gap();
    idle_ = 0;
  }
  // Passes a little time awake; true when it is time to sleep instead.
  bool step() noexcept;
  // Passes a moment where a sleep must not begin yet, or another thread holds a lock.
  void pause() const noexcept;
  // So far it has only spun: the clock has not been looked at.
  bool is_spinning() const noexcept { return idle_ <= policy_.spins; }

 private:
  void end_gap() const noexcept;

  WaitPolicy policy_;
  int idle_ = 0;  // rests since something moved
  std::chrono::steady_clock::time_point idle_since_{};
};

enum class WaitResult : uint8_t { kDone, kTimeout, kAborted };

// One wait, from its first poll to its end. Progresses the links itself: the waiting thread is
// their owner. For conditions other than a request:
//     Waiter waiter(links, abort, deadline, policy);
//     while (!condition())
//       if (const auto end = waiter.step(); end != WaitResult::kNoFinish) return end;
class TC_API Waiter {
 public:
  Waiter(std::span<Transport* const> links, const AbortSignal& abort, Deadline deadline,
         const WaitPolicy& policy) noexcept
      : links_(links), abort_(abort), deadline_(deadline), backoff_(policy) {}
  ~Waiter() { disarm(); }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  // Makes progress or passes a little time, once between two looks at the condition: a sleep is
  // announced in one step and begins in the next, so that no change in between is missed. Never
  // longer than until the deadline or the abort, or kMaxSleep. kNoFinish: go on. The links'
  // requests of an aborted wait are done when it returns kAborted.
  WaitResult step() noexcept;
  // How often it slept.
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
  size_t armed_ = 0;  // links that were told that we are about to sleep
  unsigned steps_ = 0;
  int sleeps_ = 0;
};

// Waits until `condition()`. It is looked at after each step, and is cheap.
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
