#pragma once

#include <chrono>

#include "base/handles.hpp"
#include "transport/tcp/poller.hpp"

namespace torch::comms::transport::tcp {

// Tells a poller's client when time has passed. The client then reads it, with passed().
class Timer {
 public:
  // Ends with `poller`, or is removed from it before. Throws CommError(kResourceExhausted).
  Timer(Poller& poller, Poller::Client& client);

  void after(std::chrono::nanoseconds time) noexcept { set(time, {}); }
  void every(std::chrono::nanoseconds time) noexcept { set(time, time); }
  void stop() noexcept { set({}, {}); }
  void passed() const noexcept;
  int get() const noexcept { return timer_.get(); }

 private:
  void set(std::chrono::nanoseconds first, std::chrono::nanoseconds then) noexcept;

  base::FileDescriptor timer_;
};

}  // namespace torch::comms::transport::tcp
