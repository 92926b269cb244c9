#include "backends/gloo/deadline_timer.hpp"

namespace torch::comms::gloo {

DeadlineTimer::~DeadlineTimer() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeadlineTimer::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (pending_.empty()) {
      next_wakeup_ = Clock::time_point::max();
      changed_.wait(lock);
      continue;
    }
    const auto first = pending_.begin();
    if (first->first.first > Clock::now()) {
      next_wakeup_ = first->first.first;
      changed_.wait_until(lock, next_wakeup_);
      continue;
    }
    Cancelable* const waiter = first->second;
    pending_.erase(first);
    // The lock is held, so that after ~Scoped() no cancel_wait() of `waiter` can be running.
    waiter->cancel_wait();
  }
}

DeadlineTimer::Scoped::Scoped(DeadlineTimer& timer, Clock::time_point when, Cancelable& waiter)
    : timer_(timer) {
  std::lock_guard lock(timer_.mutex_);
  if (!timer_.thread_.joinable()) timer_.thread_ = std::thread([&timer] { timer.run(); });
  key_ = {when, timer_.next_id_++};
  timer_.pending_.emplace(key_, &waiter);
  // Most deadlines are later than the thread's next wakeup, and are removed before the thread
  // wakes.
  if (when >= timer_.next_wakeup_) return;
  timer_.next_wakeup_ = when;
  timer_.changed_.notify_one();
}

DeadlineTimer::Scoped::~Scoped() {
  std::lock_guard lock(timer_.mutex_);
  timer_.pending_.erase(key_);
}

}  // namespace torch::comms::gloo
