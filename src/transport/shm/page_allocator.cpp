#include "transport/shm/page_allocator.hpp"

#include <algorithm>

namespace torch::comms::transport::shm {

std::optional<uint64_t> PageAllocator::allocate(uint64_t bytes) {
  if (bytes > capacity_) return std::nullopt;
  const uint64_t whole = std::max<uint64_t>(1, (bytes + kPageBytes - 1) / kPageBytes) * kPageBytes;
  const auto fit = by_size_.lower_bound({whole, 0});
  if (fit == by_size_.end()) {
    // A free block at the end is extended by pages that were never used.
    const auto last = free_.empty() ? free_.end() : std::prev(free_.end());
    const bool goes_on = last != free_.end() && last->first + last->second == top_;
    const uint64_t begin = goes_on ? last->first : top_;
    if (whole > capacity_ - begin) return std::nullopt;
    used_.emplace(begin, whole);
    if (goes_on) remove_free(last);
    in_use_ += whole;
    top_ = begin + whole;
    return begin;
  }
  const auto [size, begin] = *fit;
  used_.emplace(begin, whole);
  remove_free(free_.find(begin));
  if (size > whole) add_free(begin + whole, size - whole);
  in_use_ += whole;
  return begin;
}

void PageAllocator::release(uint64_t begin) {
  const auto found = used_.find(begin);
  if (found == used_.end()) return;
  uint64_t first = begin, bytes = found->second;
  in_use_ -= bytes;
  used_.erase(found);
  auto after = free_.upper_bound(first);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == first) {
      first = before->first;
      bytes += before->second;
      remove_free(before);
    }
  }
  after = free_.find(first + bytes);
  if (after != free_.end()) {
    bytes += after->second;
    remove_free(after);
  }
  add_free(first, bytes);
}

void PageAllocator::add_free(uint64_t begin, uint64_t bytes) {
  free_.emplace(begin, bytes);
  by_size_.emplace(bytes, begin);
}

void PageAllocator::remove_free(std::map<uint64_t, uint64_t>::iterator block) noexcept {
  by_size_.erase({block->second, block->first});
  free_.erase(block);
}

}  // namespace torch::comms::transport::shm
