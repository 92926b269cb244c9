#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "backends/gloo/gloo_call.hpp"

namespace torch::comms::gloo {

// Somebody who waits inside Gloo and can be woken without harm to the connection.
class Cancelable {
 public:
  // Ends the wait that runs now, or the next one if none runs. Any thread; must not block.
  virtual void cancel_wait() noexcept = 0;

 protected:
  ~Cancelable() = default;
};

// Interrupts waits at a given time. Gloo's own limits are of no use for messages: when one passes,
// Gloo closes every connection of the communicator. One thread, started by the first use. Any
// thread may use it.
class DeadlineTimer {
 public:
  DeadlineTimer() = default;
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;
  ~DeadlineTimer();

  // Armed while it lives; interrupts `who` once, at `when`. After its end `who` is not touched any
  // more. Throws std::system_error when the thread cannot be started.
  class Scoped {
   public:
    Scoped(DeadlineTimer& alarm, Clock::time_point when, Cancelable& who);
    ~Scoped();
    Scoped(const Scoped&) = delete;
    Scoped& operator=(const Scoped&) = delete;

   private:
    DeadlineTimer& timer_;
    std::pair<Clock::time_point, uint64_t> key_;
  };

 private:
  void run();

  std::mutex mutex_;  // guards all below but thread_; partner of changed_
  std::condition_variable changed_;
  std::map<std::pair<Clock::time_point, uint64_t>, Cancelable*> pending_;
  uint64_t next_id_ = 0;
  Clock::time_point next_wakeup_ = Clock::time_point::max();  // when the thread wakes by itself
  bool stop_ = false;
  std::thread thread_;  // started under mutex_
};

}  // namespace torch::comms::gloo
