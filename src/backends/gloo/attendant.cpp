#include "backends/gloo/attendant.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/log.hpp"

namespace torch::comms::gloo {
namespace {

// A turn, where several works are open.
constexpr std::chrono::milliseconds kTurn{1};

}  // namespace

Attendant::~Attendant() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
    wake();
  }
  if (thread_.joinable()) thread_.join();
}

void Attendant::wake() {
  changed_.notify_all();
  if (serving_) serving_->interrupt();
}

std::list<Attendant::Entry>::iterator Attendant::find(MessageWork& work) {
  return std::find_if(queue_.begin(), queue_.end(),
                      [&](const Entry& entry) { return entry.work.get() == &work; });
}

void Attendant::add(MessageWorkPtr work) {
  std::lock_guard lock(mutex_);
  work->is_claimed_ = false;
  queue_.push_back({std::move(work), Clock::now() + kPatience});
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& e) {
      // The message is on its way, and whoever calls poll_once() still learns how it ends.
      base::log(base::LogLevel::kError,
                std::string("no thread for messages that nobody waits for: ") + e.what());
    }
  }
  // With others in the queue the thread sleeps no longer than for this one, or takes turns already.
  if (queue_.size() == 1) wake();
}

bool Attendant::claim(MessageWork& work) {
  MessageWorkPtr queued;  // let go of without the lock
  std::unique_lock lock(mutex_);
  if (const auto entry = find(work); entry != queue_.end()) {
    queued = std::move(entry->work);
    queue_.erase(entry);
  } else if (serving_.get() == &work) {
    claimed_ = true;
    work.interrupt();
    released_.wait(lock, [&] { return serving_.get() != &work; });
  }
  return !isTerminal(work.status()) && !std::exchange(work.is_claimed_, true);
}

void Attendant::hurry(MessageWork& work) noexcept {
  std::lock_guard lock(mutex_);
  const auto entry = find(work);
  if (entry == queue_.end() || entry->due == Clock::time_point::min()) return;
  entry->due = Clock::time_point::min();
  queue_.splice(queue_.begin(), queue_, entry);
  changed_.notify_all();
}

void Attendant::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto now = Clock::now();
    const auto due = std::find_if(queue_.begin(), queue_.end(),
                                  [&](const Entry& entry) { return stop_ || entry.due <= now; });
    if (due == queue_.end()) {
      if (stop_) return;
      const auto first =
          std::min_element(queue_.begin(), queue_.end(),
                           [](const Entry& a, const Entry& b) { return a.due < b.due; });
      if (first == queue_.end())
        changed_.wait(lock);
      else
        changed_.wait_until(lock, Clock::time_point(first->due));
      continue;
    }
    serving_ = std::move(due->work);
    queue_.erase(due);
    const auto turn_ends = queue_.empty() ? Clock::time_point::max() : now + kTurn;
    lock.unlock();
    const bool ended = serving_->attend(alarm_, turn_ends);
    lock.lock();
    auto work = std::move(serving_);
    if (!ended && !claimed_) queue_.push_back({work, Clock::now()});
    claimed_ = false;
    released_.notify_all();
    lock.unlock();
    // The last reference may free tensors, which must not happen under the lock.
    work.reset();
    lock.lock();
  }
}

}  // namespace torch::comms::gloo
