#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "backends/gloo/message_work.hpp"

namespace torch::comms::gloo {

// Waits for messages that no caller waits for, so that they complete without help of the caller:
// works that are only polled, dropped, or not waited for yet. One thread serves all works of a
// communicator and its splits in turns, while there are any.
// Threads: any.
class MessageWaiter {
 public:
  MessageWaiter() = default;
  MessageWaiter(const MessageWaiter&) = delete;
  MessageWaiter& operator=(const MessageWaiter&) = delete;
  // Blocks: until the remaining works have completed, each at its own deadline at the latest. It
  // must not run on the thread that waits for them.
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

  std::mutex mutex_;                  // guards all members below; used with changed_ and released_
  std::condition_variable changed_;   // queue_ has changed
  std::condition_variable released_;  // the wait for current_ is over, or is_running_ is false
  std::list<QueuedMessageWork> queue_;
  MessageWorkPtr current_;
  bool has_adopter_ = false;  // a thread in adopt() wants current_
  bool is_running_ = false;
  std::thread::id thread_;  // of run()
};

}  // namespace torch::comms::gloo
