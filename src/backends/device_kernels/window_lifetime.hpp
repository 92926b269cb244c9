#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ctran/team/device_window.hpp"

namespace torch::comms::ctran {

// The windows of one connection that launches may use: open windows, and closed ones that graphs
// may still use. A graph that was captured while a window was open may use it as long as it can be
// launched.
//
// Threads: the thread that calls operations.
class WindowLifetimes {
 public:
  using Window = std::shared_ptr<const DeviceWindow>;
  // How many graphs have been captured, of the calls' queue and of the wait queue.
  struct GraphCounts {
    uint64_t calls = 0, waits = 0;
  };

  void open(Window window, const GraphCounts& so_far) {
    windows_.push_back({std::move(window), so_far, std::nullopt});
  }
  void close(const Window& window, const GraphCounts& so_far) {
    for (auto& one : windows_)
      if (one.window == window) one.closed = so_far;
  }
  // Releases closed windows that no graph may use. `may_be_launched(after, until)` returns whether
  // a graph in that range may still be launched. No other user of the windows may be in flight.
  template <class MayBeLaunched>
  void release_unused(const MayBeLaunched& may_be_launched) {
    std::erase_if(windows_, [&](const LiveWindow& one) {
      return one.closed && !may_be_launched(one.opened, *one.closed);
    });
  }

 private:
  struct LiveWindow {
    Window window;
    GraphCounts opened;
    std::optional<GraphCounts> closed;  // nothing while the window is open
  };
  std::vector<LiveWindow> windows_;
};

}  // namespace torch::comms::ctran
