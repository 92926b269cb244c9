#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include <torchcomms/types.hpp>
#include <torchcomms/work.hpp>

#include "base/concurrency/timer.hpp"

namespace torch::comms {

// Terminates the process if a failed asynchronous operation stays unobserved for the grace period,
// because it leaves wrong data that no code checks. A failure is observed once a call, wait() or
// finalize() has raised it, a future of the work has it, or a work of a process group has reported
// it.
// Threads: any.
class TC_API UnobservedFailureGuard : public std::enable_shared_from_this<UnobservedFailureGuard> {
 public:
  // `before_terminate` runs on a thread of its own right before termination, which waits for it at
  // most 30 s. It does not run if no thread can be started. `end` terminates the process; it is
  // std::abort except in tests. `grace` may be kNever.
  static constexpr auto kNever = std::chrono::milliseconds::max();
  UnobservedFailureGuard(std::string comm, std::chrono::milliseconds grace,
                         std::function<void()> before_terminate, std::function<void()> end);

  // Arms the guard with the failure of `work`. A wait() on the work, or meetFailure(), observes the
  // failure; otherwise the process terminates after the grace period. Only the first failure
  // counts. The code that sees the work end calls it from within that transition.
  void arm(TorchWork& work) noexcept;
  // Arms the guard as soon as `work`, which has been issued, fails. A failure with kInvalidArgument
  // does not count: the communicator continues, for example after a wait whose window was closed.
  void arm_on_failure(TorchWork& work);
  // Marks the failures of the communicator as observed, permanently.
  // Returns: the failure that was pending, if any.
  std::exception_ptr mark_observed() noexcept;

 private:
  // Does nothing if the failure has been observed meanwhile. `runs_hooks`: whether it runs
  // `before_terminate` and waits for it.
  void terminate(WorkStatus status, bool runs_hooks);
  // Blocks: until `before_terminate` returns, at most 30 s.
  void run_hooks_before_termination();

  const std::string comm_;
  const std::chrono::milliseconds grace_;
  const std::function<void()> before_terminate_, terminate_;
  std::mutex mutex_;  // guards all below
  bool is_observed_ = false, is_armed_ = false;
  std::exception_ptr pending_;
  base::ScheduledCallback expiry_;  // the end of the grace period
};

// Returns: the grace period, TORCHCOMM_ABORT_GRACE_SECONDS, or 10 s.
// Throws: CommError(kInvalidArgument).
std::chrono::milliseconds abort_grace();

}  // namespace torch::comms
