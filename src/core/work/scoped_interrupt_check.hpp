#pragma once

#include <functional>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Adds `check` to check_interrupt() on this thread while the object lives, so an exception of
// `check` ends any wait of this thread. `check` must not call check_interrupt(). With nested
// objects all checks run.
class TC_API ScopedInterruptCheck {
 public:
  explicit ScopedInterruptCheck(std::function<void()> check);
  ~ScopedInterruptCheck();
  ScopedInterruptCheck(const ScopedInterruptCheck&) = delete;
  ScopedInterruptCheck& operator=(const ScopedInterruptCheck&) = delete;

  // Runs all checks of this thread, the innermost first.
  static void run_all();

 private:
  const std::function<void()> check_;
  const ScopedInterruptCheck* const outer_;
};

}  // namespace torch::comms
