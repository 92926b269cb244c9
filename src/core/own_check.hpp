#pragma once

#include <functional>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// While it lives, check_interrupt() on this thread runs `check` first, so that what it throws ends
// any wait of this thread. It calls no check_interrupt() itself. Of one inside another both run.
class TC_API OwnCheck {
 public:
  explicit OwnCheck(std::function<void()> check);
  ~OwnCheck();
  OwnCheck(const OwnCheck&) = delete;
  OwnCheck& operator=(const OwnCheck&) = delete;

  // This thread's, the innermost first.
  static void run();

 private:
  const std::function<void()> check_;
  const OwnCheck* const before_;
};

}  // namespace torch::comms
