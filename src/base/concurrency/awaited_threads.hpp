#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include <torchcomms/base/export.hpp>

#include "base/concurrency/per_process.hpp"

namespace torch::comms::base {

// Runs work on background threads. Only the destructor waits for them, at most `timeout`. Meant
// for static objects: the destructor runs at process exit. A forked child has its own count and
// waits only for its own threads.
//
// Threads: any.
class TC_API AwaitedThreads {
 public:
  explicit AwaitedThreads(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  ~AwaitedThreads() { wait_for(0, timeout_); }
  AwaitedThreads(const AwaitedThreads&) = delete;
  AwaitedThreads& operator=(const AwaitedThreads&) = delete;

  // Runs `body` on a new thread, or on the caller's thread if none can be started. `body` must not
  // throw. Its captured objects are destroyed before the work counts as done.
  void run(std::function<void()> body);
  // Blocks: until at most `most` bodies are running, no longer than `limit`. Returns: whether that
  // was reached.
  bool wait_for(int most, std::chrono::milliseconds limit);

 private:
  struct State {
    std::mutex mutex;  // guards count; partner of fewer
    std::condition_variable fewer;
    int count = 0;
  };

  PerProcess<State> state_;
  const std::chrono::milliseconds timeout_;
};

}  // namespace torch::comms::base
