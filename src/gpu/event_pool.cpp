#include "gpu/event_pool.hpp"

namespace torch::comms::gpu {

std::shared_ptr<EventPool> EventPool::make(const Runtime& runtime, size_t most) {
  return std::shared_ptr<EventPool>(new EventPool(runtime, most));
}

EventPool::~EventPool() {
  for (NativeEvent event : idle_) runtime_.destroy_event(event);
}

EventPool::Lease EventPool::take() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      NativeEvent event = idle_.back();
      idle_.pop_back();
      return {shared_from_this(), event};
    }
  }
  return {shared_from_this(), runtime_.create_event()};
}

void EventPool::put(NativeEvent event, bool spoilt) noexcept {
  if (!spoilt) {
    std::lock_guard lock(mutex_);
    if (idle_.size() < most_) {
      idle_.push_back(event);
      return;
    }
  }
  runtime_.destroy_event(event);
}

size_t EventPool::idle() const {
  std::lock_guard lock(mutex_);
  return idle_.size();
}

EventPool::Lease& EventPool::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::move(other.pool_);
    event_ = other.event_;
    spoilt_ = other.spoilt_;
  }
  return *this;
}

void EventPool::Lease::give_back() noexcept {
  if (const auto pool = std::exchange(pool_, nullptr)) pool->put(event_, spoilt_);
}

}  // namespace torch::comms::gpu
