#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

namespace torch::comms {

// Counts the operations of a communicator that somebody may still complete. Any thread.
class Flight {
 public:
  // One operation, from its issue until nothing below uses its tensors any more.
  class Ticket {
   public:
    explicit Ticket(std::shared_ptr<Flight> flight) : flight_(std::move(flight)) {
      std::lock_guard lock(flight_->mutex_);
      ++flight_->count_;
    }
    Ticket(Ticket&&) noexcept = default;
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() { land(); }

    // Idempotent.
    void land() {
      const auto flight = std::exchange(flight_, nullptr);
      if (!flight) return;
      std::lock_guard lock(flight->mutex_);
      if (--flight->count_ == 0) flight->idle_.notify_all();
    }

   private:
    std::shared_ptr<Flight> flight_;  // null after land()
  };

  bool idle() {
    std::lock_guard lock(mutex_);
    return count_ == 0;
  }
  void wait_idle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;  // guards count_; partner of idle_
  std::condition_variable idle_;
  int count_ = 0;
};

}  // namespace torch::comms
