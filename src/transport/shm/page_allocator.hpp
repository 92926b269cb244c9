#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace torch::comms::transport::shm {

// Which blocks of a range of pages are in use: best fit among those that were in use before, then
// what never was. Neighbours that are free are one block. Numbers alone, no memory.
class PageAllocator {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  explicit PageAllocator(uint64_t capacity_bytes)
      : capacity_(capacity_bytes / kPageBytes * kPageBytes) {}

  // Where a block of at least `bytes` begins, which is a multiple of the page; nothing where there
  // is no room.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // A block of allocate(), by its beginning. Throws std::bad_alloc: the block is in use for ever.
  void release(uint64_t begin);
  // Bytes of a block in use.
  uint64_t size_of(uint64_t begin) const { return used_.at(begin); }
  uint64_t in_use() const noexcept { return in_use_; }
  // Nothing beyond was ever in use.
  uint64_t top() const noexcept { return top_; }

  // Free blocks that were in use before: calls `visit(begin, bytes)`.
  template <class Visit>
  void for_each_free(const Visit& visit) const {
    for (const auto& [begin, bytes] : free_) visit(begin, bytes);
  }

 private:
  void add_free(uint64_t begin, uint64_t bytes);
  void remove_free(std::map<uint64_t, uint64_t>::iterator block) noexcept;

  uint64_t capacity_, top_ = 0;
  uint64_t in_use_ = 0;
  std::unordered_map<uint64_t, uint64_t> used_;      // bytes, by beginning
  std::map<uint64_t, uint64_t> free_;                // the same
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // bytes and beginning of free ones
};

}  // namespace torch::comms::transport::shm
