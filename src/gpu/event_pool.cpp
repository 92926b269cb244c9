#include "gpu/event_pool.hpp"

#include <algorithm>

namespace torch::comms::gpu {

std::shared_ptr<EventPool> EventPool::make(const Runtime& runtime, size_t most) {
  return std::shared_ptr<EventPool>(new EventPool(runtime, most));
}

EventPool::EventPool(const Runtime& runtime, size_t most) : runtime_(runtime), max_idle_(most) {
  idle_.reserve(std::min<size_t>(max_idle_, 1024));
}

EventPool::~EventPool() {
  for (const auto& entry : idle_) runtime_.destroy_event(entry->event);
}

EventPool::Lease EventPool::acquire() {
  std::unique_ptr<PooledEvent> entry;
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      entry = std::move(idle_.back());
      idle_.pop_back();
      if (!idle_.empty()) __builtin_prefetch(idle_.back().get(), 1);  // for the next operation
      count_lease();
    }
  }
  if (!entry) {
    const CaptureModeGuard mode(runtime_);
    entry = std::make_unique<PooledEvent>();
    entry->event = runtime_.create_event();
    entry->pool = this;
    std::lock_guard lock(mutex_);
    count_lease();
  }
  entry->owners.store(1, std::memory_order_relaxed);
  return Lease(entry.release());
}

void EventPool::count_lease() {
  if (leased_++ == 0) self_ = shared_from_this();
}

void EventPool::recycle(std::unique_ptr<PooledEvent> entry) noexcept {
  std::shared_ptr<EventPool> last;  // possibly the last owner; destroyed after the lock
  std::unique_lock lock(mutex_);
  const bool is_kept = !entry->is_discarded && idle_.size() < max_idle_;
  if (is_kept) {
    idle_.push_back(std::move(entry));
  } else {
    lock.unlock();
    runtime_.destroy_event(entry->event);
    lock.lock();
  }
  if (--leased_ == 0) last = std::move(self_);
}

size_t EventPool::idle() const {
  std::lock_guard lock(mutex_);
  return idle_.size();
}

void EventPool::Lease::release() noexcept {
  if (entry_->owners.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  entry_->pool->recycle(std::unique_ptr<PooledEvent>(entry_));
}

}  // namespace torch::comms::gpu
