#include "interop/callbacks.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/fork.hpp"
#include "base/log.hpp"

namespace torch::comms {
namespace {

constexpr std::chrono::seconds kKeepIdle{1};

void run_logged(const std::function<void()>& body) noexcept {
  try {
    body();
  } catch (const std::exception& e) {
    base::log(base::LogLevel::kError, std::string("a callback of a future failed: ") + e.what());
  }
}

// Never destroyed: its threads outlive static destruction.
class Threads {
 public:
  void run(std::function<void()> body) {
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(body));
      if (waiting_.size() <= idle_) {
        more_.notify_one();
        return;
      }
    }
    try {
      std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {
      work();  // no thread to be had: then here
    }
  }

 private:
  void work() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      const bool more = more_.wait_for(lock, kKeepIdle, [this] { return !waiting_.empty(); });
      --idle_;
      if (!more) return;
      {
        const auto body = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        run_logged(body);
      }  // What it holds goes before the lock is taken: its end may wait for Python's lock.
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards the others; partner of more_
  std::condition_variable more_;
  std::deque<std::function<void()>> waiting_;
  size_t idle_ = 0;
};

// A forked child has none of the parent's threads, and whatever its lock was.
Threads& threads() {
  static std::mutex mutex;
  static auto* current = new Threads;
  static uint64_t generation = base::fork_generation();
  std::lock_guard lock(mutex);
  if (generation != base::fork_generation()) {
    current = new Threads;
    generation = base::fork_generation();
  }
  return *current;
}

}  // namespace

void run_callback(std::function<void()> body) { threads().run(std::move(body)); }

}  // namespace torch::comms
