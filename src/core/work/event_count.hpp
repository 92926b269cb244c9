#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace torch::comms {

// Tells whoever waits that something has changed. Any thread, that of a GPU runtime's callbacks
// too: it owns nothing.
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
  // Returns when it was rung more often than `seen` times, or after `limit`.
  void wait(uint64_t seen, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    const auto more = [&] { return epoch_ != seen; };
    if (limit == kForever)
      changed_.wait(lock, more);
    else
      changed_.wait_for(lock, limit, more);
  }

 private:
  std::mutex mutex_;  // guards rings_; partner of rung_
  std::condition_variable changed_;
  uint64_t epoch_ = 0;
};

}  // namespace torch::comms
