#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "backends/gloo/deadline_timer.hpp"
#include "backends/gloo/message_work.hpp"

namespace torch::comms::gloo {

// Waits for messages that no caller waits for, so that they complete without help of the caller:
// works that are only polled, dropped, or not waited for yet. One thread serves all works in turns;
// the first work that needs the thread starts it.
// Threads: any.
class MessageWaiter {
 public:
  explicit MessageWaiter(DeadlineTimer& timer) : timer_(timer) {}
  MessageWaiter(const MessageWaiter&) = delete;
  MessageWaiter& operator=(const MessageWaiter&) = delete;
  // Blocks: until the remaining works have completed, each at its own deadline at the latest.
  ~MessageWaiter();

  // Adds the work to the queue. The thread begins to wait for the work kPickupDelay later, unless a
  // caller has adopted it.
  void add(MessageWorkPtr work);
  // Makes the calling thread responsible for waiting for the work, until the work completes or
  // add() returns it.
  // Returns: false if the work has completed, or another thread has adopted it.
  bool adopt(MessageWork& work);
  // Makes the thread poll the work soon.
  void poll_soon(MessageWork& work) noexcept;

  static constexpr std::chrono::milliseconds kPickupDelay{5};

 private:
  struct QueuedMessageWork {
    MessageWorkPtr work;
    Clock::time_point due;  // when the thread begins to wait for the work
  };

  void run();
  void notify();  // requires mutex_
  std::list<QueuedMessageWork>::iterator find(MessageWork& work);

  DeadlineTimer& timer_;
  std::mutex mutex_;  // guards all members below except thread_; used with changed_ and released_
  std::condition_variable changed_;   // queue_ or stop_ has changed
  std::condition_variable released_;  // the wait for current_ is over
  std::list<QueuedMessageWork> queue_;
  MessageWorkPtr current_;
  bool has_adopter_ = false;  // a thread in adopt() wants current_
  bool stop_ = false;
  std::thread thread_;  // started under mutex_
};

// The threads that a communicator and its splits share. Each thread starts when it is first needed.
struct GlooThreads {
  DeadlineTimer timer;
  MessageWaiter message_waiter{timer};
};

}  // namespace torch::comms::gloo
