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

// A waiter inside Gloo whose wait can be canceled without harm to the connection.
class Cancelable {
 public:
  // Ends the current wait, or the next wait if none is running. Must not block.
  // Threads: any.
  virtual void cancel_wait() noexcept = 0;

 protected:
  ~Cancelable() = default;
};

// Cancels waits at a given time. Gloo's own timeouts cannot be used for messages: when one expires,
// Gloo closes every connection of the communicator. One thread serves all waits; the first use
// starts it.
// Threads: any.
class DeadlineTimer {
 public:
  DeadlineTimer() = default;
  DeadlineTimer(const DeadlineTimer&) = delete;
  DeadlineTimer& operator=(const DeadlineTimer&) = delete;
  ~DeadlineTimer();

  // Cancels the wait of `waiter` once, at `when`, unless this object is destroyed earlier. `waiter`
  // is not used after the destructor has returned.
  // Throws: std::system_error if the thread cannot be started.
  class Scoped {
   public:
    Scoped(DeadlineTimer& timer, Clock::time_point when, Cancelable& waiter);
    ~Scoped();
    Scoped(const Scoped&) = delete;
    Scoped& operator=(const Scoped&) = delete;

   private:
    DeadlineTimer& timer_;
    std::pair<Clock::time_point, uint64_t> key_;
  };

 private:
  void run();

  std::mutex mutex_;  // guards all members below except thread_; used with changed_
  std::condition_variable changed_;
  std::map<std::pair<Clock::time_point, uint64_t>, Cancelable*> pending_;
  uint64_t next_id_ = 0;
  Clock::time_point next_wakeup_ =
      Clock::time_point::max();  // when the thread wakes without a notification
  bool stop_ = false;
  std::thread thread_;  // started under mutex_
};

}  // namespace torch::comms::gloo
