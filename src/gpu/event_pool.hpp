#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// A pool of reusable events of one device.
//
// Threads: any.
// Lifetime: the pool lives as long as any of its leases.
class TC_API EventPool : public std::enable_shared_from_this<EventPool> {
 private:
  struct PooledEvent {
    NativeEvent event = nullptr;
    std::atomic<int> owners{0};
    std::atomic<bool> is_discarded{false};
    EventPool* pool = nullptr;
  };

 public:
  // `most`: the maximum number of idle events.
  static std::shared_ptr<EventPool> make(const Runtime& runtime, size_t most);
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // An event that returns to the pool when the last copy of the lease is destroyed.
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
    // Destroys the event instead of reusing it, because it is part of a capture whose graph may
    // live on.
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
  void count_lease();  // call with mutex_ held

  const Runtime& runtime_;
  const size_t max_idle_;
  mutable std::mutex mutex_;  // guards all below
  std::vector<std::unique_ptr<PooledEvent>> idle_;
  size_t leased_ = 0;
  std::shared_ptr<EventPool> self_;  // set while any event is leased
};

}  // namespace torch::comms::gpu
