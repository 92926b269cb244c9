#pragma once

#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "backends/gloo/alarm.hpp"
#include "backends/gloo/message_work.hpp"

namespace torch::comms::gloo {

// Waits for the messages that nobody waits for, so that they end without their user's help: works
// that are only polled, dropped, or left alone for a while. One thread, started by the first work
// that needs it; it takes turns between several. Any thread may use it.
class Attendant {
 public:
  explicit Attendant(Alarm& alarm) : alarm_(alarm) {}
  Attendant(const Attendant&) = delete;
  Attendant& operator=(const Attendant&) = delete;
  // Waits for the works that are left, each until its own limit.
  ~Attendant();

  // Keeps the work; begins to wait for it if it is still here after kHookTimeout.
  void add(MessageWorkPtr work);
  // Lets the calling thread wait for the work instead, until it ends or is given back by add().
  // False if the work has ended, or another thread waits for it so.
  bool claim(MessageWork& work);
  // Looks at the work soon.
  void hurry(MessageWork& work) noexcept;

  static constexpr std::chrono::milliseconds kPatience{5};

 private:
  struct Entry {
    MessageWorkPtr work;
    Clock::time_point due;  // when this thread begins to wait for it
  };

  void run();
  void wake();  // mutex_ held
  std::list<Entry>::iterator find(MessageWork& work);

  Alarm& alarm_;
  std::mutex mutex_;                 // guards all below but thread_; partner of changed_, released_
  std::condition_variable changed_;  // there is more to do, or less
  std::condition_variable released_;  // serving_ is over
  std::list<Entry> queue_;
  MessageWorkPtr serving_;
  bool claimed_ = false;  // serving_ is wanted by the thread in claim()
  bool stop_ = false;
  std::thread thread_;  // started under mutex_
};

// What a communicator and its splits share: threads, each started when it is first needed.
struct Services {
  Alarm alarm;
  Attendant attendant{alarm};
};

}  // namespace torch::comms::gloo
