#pragma once

#include <chrono>
#include <cstddef>
#include <functional>

#include <torchcomms/base/export.hpp>

#include "base/concurrency/per_process.hpp"

namespace torch::comms::base {

// Threads for calls that may last, of which each has one to itself. Who is through waits a while
// for another, which finds a thread whose memory has been touched: a library that reads its machine
// anew for every communicator takes twice as long in a new one.
//
// To be made once and never destroyed: its threads outlive static destruction. Any thread; in a
// forked child it begins anew, without the parent's threads.
class TC_API KeptThreads {
 public:
  // The name of threads that have nothing to do.
  static constexpr const char* kIdleName = "tc-idle";

  // `keep_bytes`: of each thread, from the end of its first body on; see HeapRetainer.
  explicit KeptThreads(std::chrono::milliseconds keep_idle, size_t keep_bytes = 0)
      : keep_idle_(keep_idle), keep_bytes_(keep_bytes) {}
  KeptThreads(const KeptThreads&) = delete;
  KeptThreads& operator=(const KeptThreads&) = delete;

  // `body` begins at once, must not throw, and is destroyed before its thread waits. Throws
  // std::system_error where no thread is to be had; then nothing has begun.
  void run(std::function<void()> body);

 private:
  struct State;

  const std::chrono::milliseconds keep_idle_;
  const size_t keep_bytes_;
  PerProcess<State> state_;
};

}  // namespace torch::comms::base
