#include "base/awaited_threads.hpp"

#include <memory>
#include <utility>

#include "base/fork.hpp"
#include "base/run_apart.hpp"

namespace torch::comms::base {

AwaitedThreads::AwaitedThreads(std::chrono::milliseconds patience)
    : patience_(patience), fork_generation_(fork_generation()) {}

AwaitedThreads::~AwaitedThreads() {
  if (fork_generation_ == fork_generation()) wait_for(0, patience_);
}

void AwaitedThreads::run(std::function<void()> body) {
  {
    const std::lock_guard lock(state_.mutex);
    ++state_.count;
  }
  // The body goes where it ran: what it owns may wait for other threads.
  auto later =
      std::make_shared<std::function<void()>>([&state = state_, body = std::move(body)]() mutable {
        std::exchange(body, nullptr)();
        const std::lock_guard lock(state.mutex);
        --state.count;
        state.fewer.notify_all();
      });
  run_apart([later] { (*later)(); });
}

bool AwaitedThreads::wait_for(int most, std::chrono::milliseconds limit) {
  std::unique_lock lock(state_.mutex);
  return state_.fewer.wait_for(lock, limit, [&] { return state_.count <= most; });
}

}  // namespace torch::comms::base
