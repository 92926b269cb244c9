#pragma once

#include <atomic>

#include <torchcomms/base/export.hpp>

namespace torch::comms {

// Reports to an outside observer whether an operation of this process has timed out. There is one
// object in a process.
// Threads: any.
class TC_API TorchCommsHealthCheck {
 public:
  static TorchCommsHealthCheck& get();

  // Records a timeout permanently: a process that has failed once does not become healthy again.
  void setTimedOut() noexcept { timed_out_.store(true, std::memory_order_release); }
  bool isTimedOut() const noexcept { return timed_out_.load(std::memory_order_acquire); }

  // The library calls setEnding() right before it terminates the process. Abort hooks that run
  // afterwards may block for a time so that a collector can fetch their data; before that they must
  // not block.
  void setEnding() noexcept { ending_.store(true, std::memory_order_release); }
  bool isEnding() const noexcept { return ending_.load(std::memory_order_acquire); }

 private:
  TorchCommsHealthCheck() = default;
  std::atomic<bool> timed_out_{false};
  std::atomic<bool> ending_{false};
};

}  // namespace torch::comms
