#include "backends/gloo/alarm.hpp"

namespace torch::comms::gloo {

Alarm::~Alarm() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Alarm::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (armed_.empty()) {
      looks_at_ = Clock::time_point::max();
      changed_.wait(lock);
      continue;
    }
    const auto first = armed_.begin();
    if (first->first.first > Clock::now()) {
      looks_at_ = first->first.first;
      changed_.wait_until(lock, looks_at_);
      continue;
    }
    Interruptible* const who = first->second;
    armed_.erase(first);
    // Under the lock, so that whoever disarms knows that nobody is in here.
    who->interrupt();
  }
}

Alarm::Armed::Armed(Alarm& alarm, Clock::time_point when, Interruptible& who) : alarm_(alarm) {
  std::lock_guard lock(alarm_.mutex_);
  if (!alarm_.thread_.joinable()) alarm_.thread_ = std::thread([&alarm] { alarm.run(); });
  key_ = {when, alarm_.next_id_++};
  alarm_.armed_.emplace(key_, &who);
  // Most are armed for later than the thread looks anyway, and disarmed before it does.
  if (when >= alarm_.looks_at_) return;
  alarm_.looks_at_ = when;
  alarm_.changed_.notify_one();
}

Alarm::Armed::~Armed() {
  std::lock_guard lock(alarm_.mutex_);
  alarm_.armed_.erase(key_);
}

}  // namespace torch::comms::gloo
