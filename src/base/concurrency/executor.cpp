#include "base/concurrency/executor.hpp"

#include <pthread.h>

#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/os/heap_retainer.hpp"

namespace torch::comms::base {
namespace {

static_assert(std::is_trivially_destructible_v<Executor>);

// Sets the thread name that debuggers, top and /proc show: it shows whether a thread is idle or
// busy.
void set_thread_name(const char* name) noexcept { ::pthread_setname_np(::pthread_self(), name); }

}  // namespace

struct Executor::State {
  // A thread and the function that it runs next.
  struct CachedThread {
    std::function<void()> function{};
    std::condition_variable called{};
  };

  std::mutex mutex{};  // guards all members and functions that wait; partner of all `called`
  // The waiting threads. The last element was busy last and is called first, so that surplus
  // threads time out and memory that is already mapped is reused.
  std::vector<CachedThread*> idle{};
  size_t threads = 0;  // running threads; idle has capacity for all of them

  // Not noexcept: a Python interpreter that ends may unwind the thread out of a function. `threads`
  // stays too high then, which only reserves more memory.
  void work(CachedThread& own, std::chrono::milliseconds keep_idle, size_t keep_bytes) {
    std::optional<HeapRetainer> memory;
    std::unique_lock lock(mutex);
    while (own.called.wait_for(lock, keep_idle, [&own] { return own.function != nullptr; })) {
      set_thread_name("tc-call");
      lock.unlock();
      own.function();
      own.function = nullptr;
      lock.lock();
      if (keep_idle.count() == 0) break;
      set_thread_name(kIdleName);
      idle.push_back(&own);
      if (memory) continue;
      lock.unlock();
      memory.emplace(keep_bytes);
      lock.lock();
    }
    std::erase(idle, &own);
    --threads;
  }
};

Executor& Executor::process() noexcept {
  static constinit Executor instance(std::chrono::seconds(1));
  return instance;
}

Executor& Executor::unshared() noexcept {
  static constinit Executor instance(std::chrono::seconds(0));
  return instance;
}

void Executor::start(std::function<void()>& function) {
  auto& state = state_.get();
  const std::lock_guard lock(state.mutex);
  if (state.idle.empty()) {
    state.idle.reserve(state.threads + 1);
    auto own = std::make_unique<State::CachedThread>();
    auto* const started = own.get();
    std::thread([&state, own = std::move(own), keep_idle = keep_idle_, keep_bytes = keep_bytes_] {
      state.work(*own, keep_idle, keep_bytes);
    }).detach();
    state.idle.push_back(started);
    ++state.threads;
  }
  auto& thread = *state.idle.back();
  state.idle.pop_back();
  thread.function = std::move(function);
  thread.called.notify_one();
}

void Executor::run_or_inline(std::function<void()> function) {
  try {
    start(function);
  } catch (const std::system_error&) {
    function();
  }
}

void TaskGroup::run(std::function<void()> function) {
  auto& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);
    ++state.count;
  }
  // The deleter runs on every way out: after the function, if it is unwound, or if it cannot start.
  std::shared_ptr<void> end(nullptr, [&state](void*) {
    const std::lock_guard lock(state.mutex);
    --state.count;
    state.fewer.notify_all();
  });
  Executor::process().run_or_inline(
      [end = std::move(end), function = std::move(function)]() mutable {
        std::exchange(function, nullptr)();
      });
}

bool TaskGroup::wait_for(int most, std::chrono::milliseconds limit) {
  auto& state = state_.get();
  std::unique_lock lock(state.mutex);
  return state.fewer.wait_for(lock, limit, [&] { return state.count <= most; });
}

}  // namespace torch::comms::base
