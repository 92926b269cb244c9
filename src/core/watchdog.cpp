#include "core/watchdog.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/fork.hpp"

namespace torch::comms {
namespace {

// Deadlines are seconds; tensors that are done with should go soon.
constexpr std::chrono::milliseconds kPeriod{5};

struct Watchdog {
  std::mutex mutex;  // guards all below; partner of changed
  std::condition_variable changed;
  std::vector<std::shared_ptr<Watched>> watched;
  const uint64_t fork_generation = base::fork_generation();

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return !watched.empty(); });
      auto now = watched;
      lock.unlock();
      for (const auto& one : now) one->look(std::chrono::steady_clock::now());
      lock.lock();
      // Under the lock: whoever calls track_deadline() after this answer finds it gone, and adds
      // it.
      std::erase_if(watched, [](const auto& one) { return !one->is_watched(); });
      // Not under it: what ends here may have something else watched.
      lock.unlock();
      now.clear();
      lock.lock();
      changed.wait_for(lock, kPeriod, [] { return false; });
    }
  }
};

std::mutex creation;
Watchdog* watchdog = nullptr;  // never destroyed: its thread outlives static destruction

Watchdog& of_this_process() {
  const std::lock_guard lock(creation);
  // A forked child has no thread; what the parent watched is none of its business.
  if (watchdog == nullptr || watchdog->fork_generation != base::fork_generation()) {
    auto made = std::make_unique<Watchdog>();
    std::thread([dog = made.get()] { dog->run(); }).detach();
    watchdog = made.release();
  }
  return *watchdog;
}

}  // namespace

void watch(const std::shared_ptr<Watched>& what) {
  auto& dog = of_this_process();
  const std::lock_guard lock(dog.mutex);
  if (std::find(dog.watched.begin(), dog.watched.end(), what) != dog.watched.end()) return;
  dog.watched.push_back(what);
  dog.changed.notify_all();
}

}  // namespace torch::comms
