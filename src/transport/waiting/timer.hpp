#pragma once

#include <chrono>

#include <torchcomms/base/export.hpp>

#include "base/os/handles.hpp"

namespace torch::comms::transport {

// A timer whose descriptor becomes readable when the time has passed, until clear_expiration()
// [timerfd_create(2)].
class TC_API Timer {
 public:
  // Throws: CommError(kResourceExhausted).
  Timer();

  void after(std::chrono::nanoseconds time) noexcept { set(time, {}); }
  void every(std::chrono::nanoseconds time) noexcept { set(time, time); }
  void stop() noexcept { set({}, {}); }
  void clear_expiration() const noexcept;
  int get() const noexcept { return timer_.get(); }

 private:
  void set(std::chrono::nanoseconds first, std::chrono::nanoseconds then) noexcept;

  base::FileDescriptor timer_;
};

}  // namespace torch::comms::transport
