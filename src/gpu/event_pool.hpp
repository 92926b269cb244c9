#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// Events of one device, used again and again. Any thread. Lives as long as one of its events.
class TC_API EventPool : public std::enable_shared_from_this<EventPool> {
 private:
  struct PooledEvent {
    NativeEvent event = nullptr;
    std::atomic<int> owners{0};
    std::atomic<bool> is_discarded{false};
    EventPool* pool = nullptr;
  };

 public:
  // `most`: how many idle events are kept.
  static std::shared_ptr<EventPool> make(const Runtime& runtime, size_t most);
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event that goes back to the pool when the last copy is let go of.
  class TC_API Lease {
   public:
    Lease() noexcept = default;
    Lease(const Lease& other) noexcept : entry_(other.entry_) {
      if (entry_ != nullptr) entry_->owners.fetch_add(1, std::memory_order_relaxed);
    }
    Lease(Lease&& other) noexcept : entry_(std::exchange(other.entry_, nullptr)) {}
    Lease& operator=(Lease other) noexcept {
      std::swap(entry_, other.entry_);
      return *this;
    }
    ~Lease() {
      if (entry_ != nullptr) release();
    }

    explicit operator bool() const noexcept { return entry_ != nullptr; }
    NativeEvent get() const noexcept { return entry_ == nullptr ? nullptr : entry_->event; }
    // It is part of a capture, whose graph may live on: destroyed instead of used again.
    void discard() noexcept { entry_->is_discarded = true; }

   private:
    friend class EventPool;
    explicit Lease(PooledEvent* entry) noexcept : entry_(entry) {}
    void release() noexcept;

    PooledEvent* entry_ = nullptr;
  };
  Lease acquire();

  size_t idle() const;

 private:
  EventPool(const Runtime& runtime, size_t most);
  void recycle(std::unique_ptr<PooledEvent> entry) noexcept;
  void count_lease();  // mutex_ held

  const Runtime& runtime_;
  const size_t max_idle_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<PooledEvent>> idle_;
  size_t leased_ = 0;
  std::shared_ptr<EventPool> self_;  // while any is leased
};

}  // namespace torch::comms::gpu
