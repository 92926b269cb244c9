#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Work on threads of its own that nobody waits for but the end of the process, `patience` at most.
// For static objects: what the threads need is never destroyed, as they may outlive it.
//
// Threads: any.
class TC_API AwaitedThreads {
 public:
  explicit AwaitedThreads(std::chrono::milliseconds patience);
  ~AwaitedThreads();  // waits; not in a forked child, where none of the threads runs
  AwaitedThreads(const AwaitedThreads&) = delete;
  AwaitedThreads& operator=(const AwaitedThreads&) = delete;

  // Where no thread is to be had the caller runs it. What `body` owns is let go before it counts as
  // done.
  void run(std::function<void()> body);
  // Waits until no more than `most` are under way, `limit` at most.
  bool wait_for(int most, std::chrono::milliseconds limit);

 private:
  struct State {
    std::mutex mutex;  // guards count; partner of fewer
    std::condition_variable fewer;
    int count = 0;
  };

  State& state_ = *new State;
  const std::chrono::milliseconds patience_;
  const uint64_t fork_generation_;
};

}  // namespace torch::comms::base
