#include "core/work/watchdog.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/os/fork.hpp"

namespace torch::comms {
namespace {

// The period is short because finished tensors should be released soon; deadlines are seconds.
constexpr std::chrono::milliseconds kPeriod{5};

struct Watchdog {
  std::mutex mutex;  // guards all below; partner of changed
  std::condition_variable changed;
  std::vector<std::shared_ptr<WatchdogClient>> clients;
  const uint64_t fork_generation = base::fork_generation();

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return !clients.empty(); });
      auto now = clients;
      lock.unlock();
      for (const auto& one : now) one->poll(std::chrono::steady_clock::now());
      lock.lock();
      // is_active() runs under the lock: a later add_to_watchdog() finds the client gone and adds
      // it again.
      std::erase_if(clients, [](const auto& one) { return !one->is_active(); });
      // Clients are destroyed without the lock, because a destructor may add another client.
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
  // A forked child has no watchdog thread, and does not poll the clients of its parent.
  if (watchdog == nullptr || watchdog->fork_generation != base::fork_generation()) {
    auto created = std::make_unique<Watchdog>();
    std::thread([instance = created.get()] { instance->run(); }).detach();
    watchdog = created.release();
  }
  return *watchdog;
}

}  // namespace

void add_to_watchdog(const std::shared_ptr<WatchdogClient>& client) {
  auto& instance = of_this_process();
  const std::lock_guard lock(instance.mutex);
  if (std::find(instance.clients.begin(), instance.clients.end(), client) != instance.clients.end())
    return;
  instance.clients.push_back(client);
  instance.changed.notify_all();
}

}  // namespace torch::comms
