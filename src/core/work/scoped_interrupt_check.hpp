#pragma once

#include <functional>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// While it lives, check_interrupt() on this thread runs `check` first, so that what it throws ends
// any wait of this thread. It calls no check_interrupt() itself. Of one inside another both run.
class TC_API ScopedInterruptCheck {
 public:
  explicit ScopedInterruptCheck(std::function<void()> check);
  ~ScopedInterruptCheck();
  ScopedInterruptCheck(const ScopedInterruptCheck&) = delete;
  ScopedInterruptCheck& operator=(const ScopedInterruptCheck&) = delete;

  // This thread's, the innermost first.
  static void run_all();

 private:
  const std::function<void()> check_;
  const ScopedInterruptCheck* const outer_;
};

}  // namespace torch::comms
