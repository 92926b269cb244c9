#include "core/work/watchdog.hpp"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/concurrency/executor.hpp"
#include "base/concurrency/per_process.hpp"

namespace torch::comms {
namespace {

// The period is short because finished tensors should be released soon; deadlines are seconds.
constexpr std::chrono::milliseconds kPeriod{5};

// The watchdog runs on the executor and not on the timer. poll() runs the hooks of works that it
// ends; these may block, and must not delay deadlines. The function stays once it runs, so that
// only the first client needs a new thread.
struct Watchdog {
  std::mutex mutex;  // guards all below; partner of changed
  std::condition_variable changed;
  std::vector<std::shared_ptr<WatchdogClient>> clients;
  bool is_running = false;

  [[noreturn]] void run() {
    ::pthread_setname_np(::pthread_self(), "tc-watchdog");
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
      std::this_thread::sleep_for(kPeriod);
      lock.lock();
    }
  }
};

base::PerProcess<Watchdog> watchdog;

}  // namespace

void add_to_watchdog(const std::shared_ptr<WatchdogClient>& client) {
  auto& instance = watchdog.get();
  const std::lock_guard lock(instance.mutex);
  if (std::find(instance.clients.begin(), instance.clients.end(), client) != instance.clients.end())
    return;
  if (!instance.is_running) base::Executor::process().run([&instance] { instance.run(); });
  instance.is_running = true;
  instance.clients.push_back(client);
  instance.changed.notify_one();
}

}  // namespace torch::comms
