#include "backends/nccl/windows/window_registry.hpp"

#include <algorithm>

namespace torch::comms::nccl {

bool WindowRegistry::contains(const char* data, size_t bytes) const noexcept {
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& window) { return window->contains(data, bytes); });
}

void WindowRegistry::close(Communicator& communicator,
                           const std::shared_ptr<RegisteredWindow>& window,
                           const WaitOptions& wait) {
  std::erase(all, window);
  for (const auto& signal_communicator : window->signal_communicators) {
    communicator.detach_child(*signal_communicator);
    signal_communicator->close(wait);
  }
  communicator.close_window(window->handle, wait);
}

void WindowRegistry::clear(Communicator& communicator, const WaitOptions& wait) {
  for (; !all.empty(); all.pop_back()) communicator.close_window(all.back()->handle, wait);
  bounce_window.reset();
}

}  // namespace torch::comms::nccl
