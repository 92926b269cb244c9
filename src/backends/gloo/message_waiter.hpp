#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "backends/gloo/deadline_timer.hpp"
#include "backends/gloo/message_work.hpp"

namespace torch::comms::gloo {

// Waits for the messages that nobody waits for, so that they end without their user's help: works
// that are only polled, dropped, or left alone for a while. One thread, started by the first work
// that needs it; it takes turns between several. Any thread may use it.
class MessageWaiter {
 public:
  explicit MessageWaiter(DeadlineTimer& alarm) : timer_(alarm) {}
  MessageWaiter(const MessageWaiter&) = delete;
  MessageWaiter& operator=(const MessageWaiter&) = delete;
  // Waits for the works that are left, each until its own limit.
  ~MessageWaiter();

  // Keeps the work; begins to wait for it if it is still here after kPatience.
  void add(MessageWorkPtr work);
  // Lets the calling thread wait for the work instead, until it ends or is given back by add().
  // False if the work has ended, or another thread waits for it so.
  bool adopt(MessageWork& work);
  // Looks at the work soon.
  void poll_soon(MessageWork& work) noexcept;

  static constexpr std::chrono::milliseconds kPickupDelay{5};

 private:
  struct QueuedMessageWork {
    MessageWorkPtr work;
    Clock::time_point due;  // when this thread begins to wait for it
  };

  void run();
  void notify();  // mutex_ held
  std::list<QueuedMessageWork>::iterator find(MessageWork& work);

  DeadlineTimer& timer_;
  std::mutex mutex_;                 // guards all below but thread_; partner of changed_, released_
  std::condition_variable changed_;  // there is more to do, or less
  std::condition_variable released_;  // serving_ is over
  std::list<QueuedMessageWork> queue_;
  MessageWorkPtr current_;
  bool has_adopter_ = false;  // serving_ is wanted by the thread in adopt()
  bool stop_ = false;
  std::thread thread_;  // started under mutex_
};

// What a communicator and its splits share: threads, each started when it is first needed.
struct GlooThreads {
  DeadlineTimer timer;
  MessageWaiter message_waiter{timer};
};

}  // namespace torch::comms::gloo
