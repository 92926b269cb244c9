#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

namespace torch::comms::transport {

// The set of closed streams, kept as ranges. Adjacent ranges are merged, so that many closed
// streams need little memory.
class ClosedStreams {
 public:
  void add(uint32_t first, uint32_t last) {
    auto next = ranges_.upper_bound(first);
    if (next != ranges_.begin() && reaches(std::prev(next)->second, first)) {
      next = std::prev(next);
      first = next->first;
    }
    while (next != ranges_.end() && reaches(last, next->first)) {
      last = std::max(last, next->second);
      next = ranges_.erase(next);
    }
    ranges_.emplace_hint(next, first, last);
  }

  bool contains(uint32_t stream) const noexcept {
    const auto next = ranges_.upper_bound(stream);
    return next != ranges_.begin() && std::prev(next)->second >= stream;
  }
  size_t ranges() const noexcept { return ranges_.size(); }

 private:
  // Returns: whether no stream lies between a range that ends at `last` and a range that begins at
  // `first`. `first` is not before the beginning of the former range.
  static bool reaches(uint32_t last, uint32_t first) noexcept {
    return last >= first || last + 1 == first;
  }
  std::map<uint32_t, uint32_t> ranges_;  // last stream by first stream
};

}  // namespace torch::comms::transport
