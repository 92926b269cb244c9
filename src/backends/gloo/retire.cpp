#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "backends/gloo/group.hpp"
#include "base/fork.hpp"

namespace torch::comms::gloo {
namespace {

// How many groups are ending on threads of their own. Never destroyed: those threads outlive static
// destruction.
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

constexpr int kManyGroups = 16;

// Messages that a program has sent and not waited for should arrive although it ends now.
struct AtExit {
  uint64_t fork_generation = base::fork_generation();
  ~AtExit() {
    if (fork_generation == base::fork_generation()) retiring().wait_for(0);
  }
} at_exit;

}  // namespace

void retire(std::unique_ptr<Group> group, bool may_block) {
  if (!group || (may_block && group->flight->idle())) return;
  {
    std::lock_guard lock(retiring().mutex);
    ++retiring().count;
  }
  const auto end = [group = group.get()] {
    group->flight->wait_idle();
    delete group;
    std::lock_guard lock(retiring().mutex);
    --retiring().count;
    retiring().fewer.notify_all();
  };
  static_cast<void>(group.release());
  try {
    std::thread(end).detach();
  } catch (const std::system_error&) {
    end();  // no thread to be had: then it takes as long as it takes
  }
}

void await_retired() { retiring().wait_for(kManyGroups); }

}  // namespace torch::comms::gloo
