#include "base/kept_threads.hpp"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/fork.hpp"
#include "base/kept_memory.hpp"

namespace torch::comms::base {
namespace {

// What debuggers, top and /proc show: whether a thread is kept, or in somebody's call.
void show_as(const char* name) noexcept { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace

struct KeptThreads::State {
  const uint64_t generation = fork_generation();
  std::mutex mutex{};  // guards the others; partner of more
  std::condition_variable more{};
  std::deque<std::function<void()>> waiting{};
  size_t idle = 0;

  void work(std::chrono::milliseconds keep_idle, size_t keep_bytes) noexcept {
    std::optional<KeptMemory> memory;
    std::unique_lock lock(mutex);
    for (;;) {
      ++idle;
      const bool waits = waiting.empty();
      if (waits) show_as(kIdleName);
      const bool has_more = more.wait_for(lock, keep_idle, [this] { return !waiting.empty(); });
      --idle;
      if (!has_more) return;
      if (waits) show_as("tc-call");
      auto body = std::move(waiting.front());
      waiting.pop_front();
      lock.unlock();
      body();
      body = nullptr;
      if (!memory) memory.emplace(keep_bytes);
      lock.lock();
    }
  }
};

// A forked child has none of the parent's threads, and whatever its lock was.
KeptThreads::State& KeptThreads::state() {
  auto* current = state_.load(std::memory_order_acquire);
  if (current != nullptr && current->generation == fork_generation()) return *current;
  auto* const made = new State;
  if (state_.compare_exchange_strong(current, made, std::memory_order_acq_rel)) return *made;
  delete made;
  return *current;
}

void KeptThreads::run(std::function<void()> body) {
  auto& own = state();
  const std::lock_guard lock(own.mutex);
  // One that is idle may be on its way to another body.
  if (own.waiting.size() >= own.idle)
    std::thread([&own, keep_idle = keep_idle_, keep_bytes = keep_bytes_] {
      own.work(keep_idle, keep_bytes);
    }).detach();
  own.waiting.push_back(std::move(body));
  own.more.notify_one();
}

}  // namespace torch::comms::base
