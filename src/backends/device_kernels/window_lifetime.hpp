#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "ctran/team/device_window.hpp"

namespace torch::comms::ctran {

// The windows of one connection that launches may use: those that are open, and closed ones as long
// as graphs may be launched that were captured while they were open.
//
// Threads: the one that calls operations.
class WindowLifetimes {
 public:
  using Window = std::shared_ptr<const DeviceWindow>;
  // How many there have been, of calls and of waits.
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
  // Lets go of closed ones that no graph may use: `may_be_launched(after, until)` says of those
  // that came after as many and are among the first so many. Nothing else that uses them may be
  // under way.
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
    std::optional<GraphCounts> closed;  // while it is open: none
  };
  std::vector<LiveWindow> windows_;
};

}  // namespace torch::comms::ctran
