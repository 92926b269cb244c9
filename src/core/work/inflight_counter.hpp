#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace torch::comms {

// Counts the operations of a communicator that are in flight.
// Threads: any.
class InFlightCounter {
 public:
  // Represents one operation, from its issue until no lower layer uses its tensors.
  class Token {
   public:
    explicit Token(std::shared_ptr<InFlightCounter> flight) : counter_(std::move(flight)) {
      counter_->count_.fetch_add(1, std::memory_order_relaxed);
    }
    Token(Token&&) noexcept = default;
    Token& operator=(Token&&) = delete;
    ~Token() { release(); }

    // Idempotent.
    void release() {
      const auto flight = std::exchange(counter_, nullptr);
      if (!flight) return;
      if (flight->count_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
      // Without the lock, a waiter could miss the notification between its check and its wait.
      std::lock_guard lock(flight->mutex_);
      flight->idle_.notify_all();
    }

   private:
    std::shared_ptr<InFlightCounter> counter_;  // null after release()
  };

  bool is_idle() const noexcept { return count_.load(std::memory_order_acquire) == 0; }
  void wait_idle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return is_idle(); });
  }

 private:
  std::atomic<int> count_{0};
  std::mutex mutex_;  // partner of idle_
  std::condition_variable idle_;
};

}  // namespace torch::comms
