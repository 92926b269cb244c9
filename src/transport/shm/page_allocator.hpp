#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace torch::comms::transport::shm {

// Allocates blocks in a range of pages: best fit among blocks that were in use before, else pages
// that were never used. Adjacent free blocks are merged. It manages offsets only, no memory.
class PageAllocator {
 public:
  static constexpr uint64_t kPageBytes = 4096;

  explicit PageAllocator(uint64_t capacity_bytes)
      : capacity_(capacity_bytes / kPageBytes * kPageBytes) {}

  // Returns: the beginning of a block of at least `bytes`, a multiple of kPageBytes; nullopt if
  // there is no room.
  std::optional<uint64_t> allocate(uint64_t bytes);
  // Frees the block of allocate() that begins at `begin`.
  // Throws: std::bad_alloc; the block then stays in use for ever.
  void release(uint64_t begin);
  // Returns: the bytes of a block in use.
  uint64_t size_of(uint64_t begin) const { return used_.at(begin); }
  uint64_t in_use() const noexcept { return in_use_; }
  // Returns: the end of all blocks that were ever in use.
  uint64_t top() const noexcept { return top_; }

  // Calls `visit(begin, bytes)` for each free block that was in use before.
  template <class Visit>
  void for_each_free(const Visit& visit) const {
    for (const auto& [begin, bytes] : free_) visit(begin, bytes);
  }

 private:
  void add_free(uint64_t begin, uint64_t bytes);
  void remove_free(std::map<uint64_t, uint64_t>::iterator block) noexcept;

  uint64_t capacity_, top_ = 0;
  uint64_t in_use_ = 0;
  std::unordered_map<uint64_t, uint64_t> used_;      // bytes by beginning
  std::map<uint64_t, uint64_t> free_;                // bytes by beginning, of free blocks
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // bytes and beginning of free blocks
};

}  // namespace torch::comms::transport::shm
