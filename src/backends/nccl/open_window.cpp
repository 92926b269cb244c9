#include "backends/nccl/open_window.hpp"

#include <algorithm>

namespace torch::comms::nccl {

bool OpenWindows::know(const char* data, size_t bytes) const noexcept {
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& window) { return window->has(data, bytes); });
}

void OpenWindows::close(Communicator& communicator, const std::shared_ptr<OpenWindow>& window,
                        const WaitOptions& wait) {
  std::erase(all, window);
  for (const auto& way : window->ways) {
    communicator.detach_child(*way);
    way->close(wait);
  }
  communicator.close_window(window->handle, wait);
}

void OpenWindows::clear(Communicator& communicator, const WaitOptions& wait) {
  for (; !all.empty(); all.pop_back()) communicator.close_window(all.back()->handle, wait);
  staging.reset();
}

}  // namespace torch::comms::nccl
