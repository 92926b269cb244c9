#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace torch::comms {

// Tells whoever waits that something has changed. Any thread, that of a GPU runtime's callbacks
// too: it owns nothing.
class Bell {
 public:
  static constexpr auto kNoLimit = std::chrono::milliseconds::max();

  void ring() noexcept {
    const std::lock_guard lock(mutex_);
    ++rings_;
    rung_.notify_all();
  }
  uint64_t rings() noexcept {
    const std::lock_guard lock(mutex_);
    return rings_;
  }
  // Returns when it was rung more often than `seen` times, or after `limit`.
  void await(uint64_t seen, std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    const auto more = [&] { return rings_ != seen; };
    if (limit == kNoLimit)
      rung_.wait(lock, more);
    else
      rung_.wait_for(lock, limit, more);
  }

 private:
  std::mutex mutex_;  // guards rings_; partner of rung_
  std::condition_variable rung_;
  uint64_t rings_ = 0;
};

}  // namespace torch::comms
