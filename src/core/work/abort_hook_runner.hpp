#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <mutex>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// That a communicator has ended, told to its abort hooks: once, on a thread of their own, since
// they are the program's, and may last or want what others hold.
//
// Threads: any.
class TC_API AbortHookRunner {
 public:
  // How long whoever raises the failure waits for the hooks, from when they began.
  static constexpr std::chrono::seconds kHookTimeout{1};

  // The first call begins `hooks`, which must not throw; later ones do nothing. Does not wait for
  // them, but where no thread is to be had: then they run here.
  void start(std::function<void()> hooks);
  // Returns when they have run, or had kHookTimeout. At once where none have begun, and in hooks of
  // whatever communicator, which may use their own.
  void wait() const;
  // The same however long they take.
  void wait_until_done() const;
  // None will run, as if they had; whether they had begun.
  bool cancel();
  // The next failure is to be told again.
  void rearm();

  // This thread runs hooks.
  static bool in_hook() noexcept;

 private:
  using Clock = std::chrono::steady_clock;
  struct AbortHookRun {
    std::shared_future<void> done;  // not valid: none has begun
    Clock::time_point deadline;
  };
  AbortHookRun run() const;

  mutable std::mutex mutex_;  // guards run_
  AbortHookRun run_;
};

}  // namespace torch::comms
