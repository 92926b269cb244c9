#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "backends/gloo/call.hpp"

namespace torch::comms::gloo {

// Somebody who waits inside Gloo and can be woken without harm to the connection.
class Interruptible {
 public:
  // Ends the wait that runs now, or the next one if none runs. Any thread; must not block.
  virtual void interrupt() noexcept = 0;

 protected:
  ~Interruptible() = default;
};

// Interrupts waits at a given time. Gloo's own limits are of no use for messages: when one passes,
// Gloo closes every connection of the communicator. One thread, started by the first use. Any
// thread may use it.
class Alarm {
 public:
  Alarm() = default;
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  ~Alarm();

  // Armed while it lives; interrupts `who` once, at `when`. After its end `who` is not touched any
  // more. Throws std::system_error when the thread cannot be started.
  class Armed {
   public:
    Armed(Alarm& alarm, Clock::time_point when, Interruptible& who);
    ~Armed();
    Armed(const Armed&) = delete;
    Armed& operator=(const Armed&) = delete;

   private:
    Alarm& alarm_;
    std::pair<Clock::time_point, uint64_t> key_;
  };

 private:
  void run();

  std::mutex mutex_;  // guards all below but thread_; partner of changed_
  std::condition_variable changed_;
  std::map<std::pair<Clock::time_point, uint64_t>, Interruptible*> armed_;
  uint64_t next_id_ = 0;
  Clock::time_point looks_at_ = Clock::time_point::max();  // when the thread wakes by itself
  bool stop_ = false;
  std::thread thread_;  // started under mutex_
};

}  // namespace torch::comms::gloo
