#include "core/retire.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "base/fork.hpp"
#include "base/run_apart.hpp"

namespace torch::comms {
namespace {

// How many communicators are ending on threads of their own. Never destroyed: those threads outlive
// static destruction.
struct Retiring {
  std::mutex mutex;  // guards count; partner of fewer
  std::condition_variable fewer;
  int count = 0;

  bool wait_for(int most) {
    std::unique_lock lock(mutex);
    return fewer.wait_for(lock, std::chrono::seconds(1), [&] { return count <= most; });
  }
};
Retiring& retiring() {
  static auto* state = new Retiring;
  return *state;
}

// Messages that a program has sent and not waited for should arrive although it ends now.
struct AtExit {
  uint64_t fork_generation = base::fork_generation();
  ~AtExit() {
    if (fork_generation == base::fork_generation()) retiring().wait_for(0);
  }
} at_exit;

}  // namespace

void retire(std::shared_ptr<Flight> flight, std::function<void()> end, bool may_block) {
  if (may_block && flight->idle()) return end();
  {
    std::lock_guard lock(retiring().mutex);
    ++retiring().count;
  }
  // What ends is let go by whoever ends it: that may wait for other threads.
  auto later = std::make_shared<std::function<void()>>(
      [flight = std::move(flight), end = std::move(end)]() mutable {
        flight->wait_idle();
        std::exchange(end, nullptr)();
        std::lock_guard lock(retiring().mutex);
        --retiring().count;
        retiring().fewer.notify_all();
      });
  base::run_apart([later] { (*later)(); });
}

void await_retired(int most) { retiring().wait_for(most); }

}  // namespace torch::comms
