#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Counts the calls that are running in a communicator, so that finalize() releases nothing that a
// running call uses.
// Threads: any.
class TC_API ActiveCalls {
 public:
  // Represents one call from begin to end. Calls nest, because hooks may make calls.
  class TC_API CallScope {
   public:
    explicit CallScope(ActiveCalls& active_calls) noexcept;
    ~CallScope();
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

   private:
    friend ActiveCalls;
    ActiveCalls& calls_;
    const CallScope* const outer_;  // the enclosing call of this thread, in any communicator
  };

  // Waits until no other thread is inside a call. Calls that start later must detect this and
  // return by themselves. `check` runs about every 20 ms and may throw.
  // Returns: true if no other thread is inside; false if one still is a second after `ends` has
  // become true (interpreter_is_exiting()), because it may never leave.
  // Throws: the exception of `check`.
  [[nodiscard]] bool wait_until_idle(const std::function<void()>& check,
                                     const std::function<bool()>& ends);

 private:
  int count_of_this_thread() const noexcept;

  std::atomic<int> active_{0};
  std::atomic<bool> has_waiter_{false};
  std::mutex mutex_;  // partner of call_ended_
  std::condition_variable call_ended_;
};

}  // namespace torch::comms
