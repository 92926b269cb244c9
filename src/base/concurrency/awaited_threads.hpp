#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <torchcomms/base/export.hpp>

#include "base/concurrency/per_process.hpp"

namespace torch::comms::base {

// Work on threads of its own that nobody waits for but the end of the process, `patience` at most.
// For static objects; a forked child waits for its own threads.
//
// Threads: any.
class TC_API AwaitedThreads {
 public:
  explicit AwaitedThreads(std::chrono::milliseconds patience) : patience_(patience) {}
  ~AwaitedThreads() { wait_for(0, patience_); }
  AwaitedThreads(const AwaitedThreads&) = delete;
  AwaitedThreads& operator=(const AwaitedThreads&) = delete;

  // `body` must not throw. What it owns is let go before it counts as done. Where no thread is to
  // be had the caller runs it.
  void run(std::function<void()> body);
  // Waits until no more than `most` are under way, `limit` at most; whether it is so.
  bool wait_for(int most, std::chrono::milliseconds limit);

 private:
  struct State {
    std::mutex mutex;  // guards count; partner of fewer
    std::condition_variable fewer;
    int count = 0;
  };

  PerProcess<State> state_;
  const std::chrono::milliseconds patience_;
};

}  // namespace torch::comms::base
