#include "backends/gloo/message_waiter.hpp"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include <torchcomms/base/error.hpp>

#include "base/concurrency/executor.hpp"
#include "base/os/log.hpp"

namespace torch::comms::gloo {
namespace {

// The duration of one turn if several works are pending.
constexpr std::chrono::milliseconds kWaitSlice{1};

// Works run hooks of the program, which may change thread-local state, so no other functions run on
// these threads.
constinit base::Executor waiter_threads(std::chrono::seconds(1));

}  // namespace

MessageWaiter::~MessageWaiter() {
  std::unique_lock lock(mutex_);
  // A hook of a work that destroys the last communicator would wait for itself.
  TC_CHECK(thread_ != std::this_thread::get_id());
  changed_.notify_all();  // a caller may have adopted the last work
  released_.wait(lock, [this] { return !is_running_; });
}

void MessageWaiter::notify() {
  changed_.notify_all();
  if (current_) current_->cancel_wait();
}

std::list<MessageWaiter::QueuedMessageWork>::iterator MessageWaiter::find(MessageWork& work) {
  return std::find_if(queue_.begin(), queue_.end(),
                      [&](const QueuedMessageWork& entry) { return entry.work.get() == &work; });
}

void MessageWaiter::add(MessageWorkPtr work) {
  std::lock_guard lock(mutex_);
  work->is_adopted_ = false;
  queue_.push_back({std::move(work), Clock::now() + kPickupDelay});
  if (!is_running_) {
    try {
      waiter_threads.run([this] { run(); });  // the destructor waits for run()
      is_running_ = true;
    } catch (const std::system_error& e) {
      // The message is already posted, and wait() still returns its result.
      base::log(base::LogLevel::kError,
                std::string("cannot start the thread that waits for messages in the background: ") +
                    e.what());
    }
  }
  // If other works are queued, the thread already wakes in time for this one or serves works in
  // turns.
  if (queue_.size() == 1) notify();
}

bool MessageWaiter::adopt(MessageWork& work) {
  MessageWorkPtr queued;  // destroyed without the lock
  std::unique_lock lock(mutex_);
  if (const auto entry = find(work); entry != queue_.end()) {
    queued = std::move(entry->work);
    queue_.erase(entry);
  } else if (current_.get() == &work) {
    has_adopter_ = true;
    work.cancel_wait();
    released_.wait(lock, [&] { return current_.get() != &work; });
  }
  return !isTerminal(work.status()) && !std::exchange(work.is_adopted_, true);
}

void MessageWaiter::poll_soon(MessageWork& work) noexcept {
  std::lock_guard lock(mutex_);
  const auto entry = find(work);
  if (entry == queue_.end() || entry->due == Clock::time_point::min()) return;
  entry->due = Clock::time_point::min();
  queue_.splice(queue_.begin(), queue_, entry);
  changed_.notify_all();
}

void MessageWaiter::run() {
  std::unique_lock lock(mutex_);
  thread_ = std::this_thread::get_id();
  while (!queue_.empty()) {
    const auto now = Clock::now();
    const auto due = std::find_if(queue_.begin(), queue_.end(),
                                  [&](const QueuedMessageWork& entry) { return entry.due <= now; });
    if (due == queue_.end()) {
      const auto first = std::min_element(
          queue_.begin(), queue_.end(),
          [](const QueuedMessageWork& a, const QueuedMessageWork& b) { return a.due < b.due; });
      changed_.wait_until(lock, Clock::time_point(first->due));
      continue;
    }
    current_ = std::move(due->work);
    queue_.erase(due);
    const auto slice_end = queue_.empty() ? Clock::time_point::max() : now + kWaitSlice;
    lock.unlock();
    const bool ended = current_->wait_until(slice_end);
    lock.lock();
    auto work = std::move(current_);
    if (!ended && !has_adopter_) queue_.push_back({work, Clock::now()});
    has_adopter_ = false;
    released_.notify_all();
    lock.unlock();
    // The last reference may free tensors, which must not happen under the lock.
    work.reset();
    lock.lock();
  }
  is_running_ = false;
  thread_ = {};
  released_.notify_all();
}

}  // namespace torch::comms::gloo
