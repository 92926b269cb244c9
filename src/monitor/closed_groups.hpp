#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

namespace torch::comms::monitor {

// The groups that ended last, for whose late notes nobody waits: those of older ones have come.
class ClosedGroups {
 public:
  static constexpr size_t kMaxGroups = 1024;

  void add(uint64_t group) {
    groups_.push_back(group);
    if (groups_.size() > kMaxGroups) groups_.pop_front();
  }
  // Looked for among all: only notes for groups that are not here are.
  bool contains(uint64_t group) const {
    return std::find(groups_.rbegin(), groups_.rend(), group) != groups_.rend();
  }

 private:
  std::deque<uint64_t> groups_;
};

}  // namespace torch::comms::monitor
