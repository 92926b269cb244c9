#include "base/concurrency/awaited_threads.hpp"

#include <memory>
#include <utility>

#include "base/concurrency/run_apart.hpp"

namespace torch::comms::base {

void AwaitedThreads::run(std::function<void()> body) {
  auto& state = state_.get();
  {
    const std::lock_guard lock(state.mutex);
    ++state.count;
  }
  // The body is destroyed on the thread that ran it, because its destructor may wait for other
  // threads.
  auto later = std::make_shared<std::function<void()>>([&state, body = std::move(body)]() mutable {
    std::exchange(body, nullptr)();
    const std::lock_guard lock(state.mutex);
    --state.count;
    state.fewer.notify_all();
  });
  run_apart([later] { (*later)(); });
}

bool AwaitedThreads::wait_for(int most, std::chrono::milliseconds limit) {
  auto& state = state_.get();
  std::unique_lock lock(state.mutex);
  return state.fewer.wait_for(lock, limit, [&] { return state.count <= most; });
}

}  // namespace torch::comms::base
