#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <mutex>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Runs the abort hooks of a communicator once, on a thread of their own. The hooks belong to the
// program: they may take long, or need locks that other threads hold.
// Threads: any.
class TC_API AbortHookRunner {
 public:
  // The longest time that a thread which raises the failure waits for the hooks, counted from their
  // start.
  static constexpr std::chrono::seconds kHookTimeout{1};

  // Starts `hooks`, which must not throw; later calls do nothing. If no thread can be created, the
  // hooks run on the calling thread.
  void start(std::function<void()> hooks);
  // Waits until the hooks have run or kHookTimeout has passed. It returns at once if none have
  // started, and inside hooks of any communicator, because these may use their own.
  void wait() const;
  // Waits until the hooks have run, without a timeout; otherwise like wait().
  void wait_until_done() const;
  // Prevents the hooks from running, as if they had run.
  // Returns: true if they had started already.
  bool cancel();
  // Lets start() run hooks again at the next failure.
  void rearm();

  // Returns: true if this thread is running abort hooks.
  static bool in_hook() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct AbortHookRun {
    std::shared_future<void> done;  // not valid if no hooks have started
    Clock::time_point deadline;
  };
  AbortHookRun run() const;

  mutable std::mutex mutex_;  // guards run_
  AbortHookRun run_;
};

}  // namespace torch::comms
