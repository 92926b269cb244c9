#pragma once

#include <atomic>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Whether this process has met a failure that an outside observer should know of. One a process.
// Any thread.
class TC_API TorchCommsHealthCheck {
 public:
  static TorchCommsHealthCheck& get();

  // For good: a process that failed once does not become healthy again.
  void setTimedOut() noexcept { timed_out_.store(true, std::memory_order_release); }
  bool isTimedOut() const noexcept { return timed_out_.load(std::memory_order_acquire); }

  // Set by the library right before it ends the process itself. The abort hooks that run from then
  // on may take time to let somebody fetch what is known; before, they must not block.
  void setEnding() noexcept { ending_.store(true, std::memory_order_release); }
  bool isEnding() const noexcept { return ending_.load(std::memory_order_acquire); }

 private:
  TorchCommsHealthCheck() = default;
  std::atomic<bool> timed_out_{false};
  std::atomic<bool> ending_{false};
};

}  // namespace torch::comms
