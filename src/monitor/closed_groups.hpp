#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace torch::comms::monitor {

// The ids of the groups that this rank closed last; their late messages are dropped. For older
// groups all messages have arrived.
class ClosedGroups {
 public:
  static constexpr size_t kMaxGroups = 1024;

  void add(uint64_t group) {
    groups_.push_back(group);
    if (groups_.size() > kMaxGroups) groups_.pop_front();
  }
  // Returns whether `group` is one of them. The linear search is rare: only for messages to groups
  // that do not exist.
  bool contains(uint64_t group) const {
    return std::find(groups_.rbegin(), groups_.rend(), group) != groups_.rend();
  }

 private:
  std::deque<uint64_t> groups_;
};

}  // namespace torch::comms::monitor
