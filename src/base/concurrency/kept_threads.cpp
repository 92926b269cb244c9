#include "base/concurrency/kept_threads.hpp"

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/os/heap_retainer.hpp"

namespace torch::comms::base {
namespace {

// Sets the thread name that debuggers, top and /proc show: it shows whether a thread is idle or
// busy.
void set_thread_name(const char* name) noexcept { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace

struct KeptThreads::State {
  // A thread and the body that it runs next.
  struct CachedThread {
    std::function<void()> body{};
    std::condition_variable called{};
  };

  std::mutex mutex{};  // guards all members and CachedThread::body; partner of CachedThread::called
  // The waiting threads. The last element was busy last and is called first, so that surplus
  // threads time out and memory that is already mapped is reused.
  std::vector<CachedThread*> idle{};
  size_t threads = 0;  // running threads; idle has capacity for all of them

  void work(std::function<void()> body, std::chrono::milliseconds keep_idle,
            size_t keep_bytes) noexcept {
    std::optional<HeapRetainer> memory;
    CachedThread cached_thread{std::move(body)};
    set_thread_name("tc-call");
    std::unique_lock lock(mutex, std::defer_lock);
    for (;;) {
      cached_thread.body();
      cached_thread.body = nullptr;
      lock.lock();
      set_thread_name(kIdleName);
      idle.push_back(&cached_thread);
      if (!memory) {
        lock.unlock();
        memory.emplace(keep_bytes);
        lock.lock();
      }
      const auto is_called = [&cached_thread] { return static_cast<bool>(cached_thread.body); };
      if (!cached_thread.called.wait_for(lock, keep_idle, is_called)) {
        std::erase(idle, &cached_thread);
        --threads;
        return;
      }
      set_thread_name("tc-call");
      lock.unlock();
    }
  }
};

void KeptThreads::run(std::function<void()> body) {
  auto& own = state_.get();
  const std::lock_guard lock(own.mutex);
  if (own.idle.empty()) {
    own.idle.reserve(own.threads + 1);
    std::thread([&own, body = std::move(body), keep_idle = keep_idle_,
                 keep_bytes = keep_bytes_]() mutable {
      own.work(std::exchange(body, nullptr), keep_idle, keep_bytes);
    }).detach();
    ++own.threads;
    return;
  }
  auto& cached_thread = *own.idle.back();
  own.idle.pop_back();
  cached_thread.body = std::move(body);
  cached_thread.called.notify_one();
}

}  // namespace torch::comms::base
