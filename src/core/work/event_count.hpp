#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace torch::comms {

// An eventcount: a waiter reads epoch(), checks its condition, and waits until the epoch changes.
// Threads: any, including the callback thread of a GPU runtime.
class EventCount {
 public:
  static constexpr auto kForever = std::chrono::milliseconds::max();

  void notify_all() noexcept {
    const std::lock_guard lock(mutex_);
    ++epoch_;
    changed_.notify_all();
  }
  uint64_t epoch() noexcept {
    const std::lock_guard lock(mutex_);
    return epoch_;
  }
  // Waits until the epoch differs from `seen`, or `limit` has passed.
  void wait(uint64_t seen, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    const auto more = [&] { return epoch_ != seen; };
    if (limit == kForever)
      changed_.wait(lock, more);
    else
      changed_.wait_for(lock, limit, more);
  }

 private:
  std::mutex mutex_;  // guards epoch_; partner of changed_
  std::condition_variable changed_;
  uint64_t epoch_ = 0;
};

}  // namespace torch::comms
