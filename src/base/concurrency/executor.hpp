#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>

#include <torchcomms/base/export.hpp>

#include "base/concurrency/per_process.hpp"

namespace torch::comms::base {

// Runs functions on detached threads. A function has a thread to itself while it runs, so it may
// block for long. An idle thread waits `keep_idle` for the next function; 0 means that each
// function gets a new thread. Otherwise a function may find thread-local state that an earlier one
// has left.
//
// Threads: any. A forked child starts without the parent's threads.
// Lifetime: the destructor does nothing. The threads outlive it, and static destruction.
class TC_API Executor {
 public:
  // The name of idle threads.
  static constexpr const char* kIdleName = "tc-idle";

  // `keep_bytes`: heap that each thread retains from the end of its first function on, see
  // HeapRetainer.
  constexpr explicit Executor(std::chrono::milliseconds keep_idle, size_t keep_bytes = 0) noexcept
      : keep_idle_(keep_idle), keep_bytes_(keep_bytes) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Returns: the executor for functions of this library that need no heap retained.
  static Executor& process() noexcept;
  // Returns: an executor without idle threads. It is for hooks of the program, which may change
  // thread-local state, such as the current device.
  static Executor& unshared() noexcept;

  // Runs `function` at once. Everything that it uses must outlive it, and it must not throw. It is
  // destroyed on the thread that has run it, before the thread becomes idle.
  // Throws: std::system_error if no thread can be started; `function` has not run then.
  void run(std::function<void()> function) { start(function); }
  // As run(), but if no thread can be started, the caller runs `function` itself.
  void run_or_inline(std::function<void()> function);

 private:
  struct State;
  // If it throws, `function` is unchanged.
  void start(std::function<void()>& function);

  const std::chrono::milliseconds keep_idle_;
  const size_t keep_bytes_;
  PerProcess<State> state_;
};

// Runs functions on Executor::process() and counts them. The destructor waits for them, at most
// `timeout`. Meant for static objects: the destructor runs at process exit. A forked child has its
// own count and waits only for its own functions.
//
// Threads: any.
class TC_API TaskGroup {
 public:
  explicit TaskGroup(std::chrono::milliseconds timeout) : timeout_(timeout) {}
  ~TaskGroup() { wait_for(0, timeout_); }
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // Runs `function` as Executor::run_or_inline() does. The function counts until the objects that
  // it has captured are destroyed, also if it cannot start or its thread is unwound.
  void run(std::function<void()> function);
  // Blocks: until at most `most` functions are running, no longer than `limit`. Returns: whether
  // that was reached.
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
