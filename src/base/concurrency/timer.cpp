#include "base/concurrency/timer.hpp"

#include <pthread.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "base/concurrency/per_process.hpp"

namespace torch::comms::base {

using Clock = std::chrono::steady_clock;

struct TimerEntry {
  Clock::time_point when;
  std::function<void()> callback;
  // The fork generation of the process that called schedule().
  const uint64_t generation = fork_generation();
};

namespace {

struct IsEarlier {
  bool operator()(const TimerEntry* a, const TimerEntry* b) const noexcept {
    return std::tie(a->when, a) < std::tie(b->when, b);
  }
};

struct TimerState {
  std::mutex mutex{};                  // guards all members below
  std::condition_variable changed{};   // next_wakeup is earlier
  std::condition_variable returned{};  // running has changed
  std::set<TimerEntry*, IsEarlier> pending{};
  // When the thread wakes without a notification.
  Clock::time_point next_wakeup = Clock::time_point::max();
  TimerEntry* running = nullptr;
  std::thread::id thread{};

  void start() {
    std::thread started([this] {
      ::pthread_setname_np(::pthread_self(), "tc-timer");
      run();
    });
    thread = started.get_id();
    started.detach();
  }

  [[noreturn]] void run() noexcept {
    std::unique_lock lock(mutex);
    while (true) {
      if (pending.empty()) {
        next_wakeup = Clock::time_point::max();
        changed.wait(lock);
        continue;
      }
      auto* const first = *pending.begin();
      if (first->when > Clock::now()) {
        next_wakeup = first->when;
        // A copy, because the wait reads it without the lock.
        changed.wait_until(lock, Clock::time_point(next_wakeup));
        continue;
      }
      pending.erase(pending.begin());
      running = first;
      auto callback = std::move(running->callback);
      lock.unlock();
      callback();
      callback = nullptr;
      lock.lock();
      running = nullptr;
      returned.notify_all();
    }
  }
};

PerProcess<TimerState> timer;

}  // namespace

ScheduledCallback schedule(Clock::time_point when, std::function<void()> callback) {
  auto entry = std::make_unique<TimerEntry>(TimerEntry{when, std::move(callback)});
  auto& state = timer.get();
  const std::lock_guard lock(state.mutex);
  if (state.thread == std::thread::id()) state.start();
  state.pending.insert(entry.get());
  // Most callbacks are later than the thread's next wakeup, and are canceled before the thread
  // wakes.
  if (when < state.next_wakeup) {
    state.next_wakeup = when;
    state.changed.notify_one();
  }
  return ScheduledCallback(entry.release());
}

void cancel_timer(TimerEntry* entry) noexcept {
  // Freed without the lock, because the callback may own objects that take it.
  const std::unique_ptr<TimerEntry> owner(entry);
  // timer.get() is that of this process, and an entry of the parent is not in it.
  if (entry->generation != fork_generation()) return;
  auto& state = timer.get();
  std::unique_lock lock(state.mutex);
  state.pending.erase(entry);
  if (state.thread != std::this_thread::get_id())
    state.returned.wait(lock, [&] { return state.running != entry; });
  else if (state.running == entry)
    state.running = nullptr;
}

}  // namespace torch::comms::base
