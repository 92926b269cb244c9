#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include <torchcomms/base/export.hpp>

#include "base/concurrency/per_process.hpp"

namespace torch::comms::base {

// A cache of threads for calls that may block for long; each call has a thread to itself. An idle
// thread waits `keep_idle` for the next call and keeps its heap pages. A vendor library that reads
// the machine's topology for every communicator takes twice as long on a new thread.
//
// Threads: any. A forked child starts without the parent's threads.
// Lifetime: never destroy an instance, because its threads outlive static destruction.
class TC_API KeptThreads {
 public:
  // The name of idle threads.
  static constexpr const char* kIdleName = "tc-idle";

  // `keep_bytes`: heap that each thread retains from the end of its first body on, see
  // HeapRetainer.
  explicit KeptThreads(std::chrono::milliseconds keep_idle, size_t keep_bytes = 0)
      : keep_idle_(keep_idle), keep_bytes_(keep_bytes) {}
  KeptThreads(const KeptThreads&) = delete;
  KeptThreads& operator=(const KeptThreads&) = delete;

  // Runs `body` at once. `body` must not throw. It is destroyed before its thread becomes idle.
  // Throws: std::system_error if no thread can be started; `body` has not run then.
  void run(std::function<void()> body);

 private:
  struct State;

  const std::chrono::milliseconds keep_idle_;
  const size_t keep_bytes_;
  PerProcess<State> state_;
};

}  // namespace torch::comms::base
