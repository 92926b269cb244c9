#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "transport/protocol/request.hpp"

namespace torch::comms::ctran {

// A pool of scratch memory for collectives. It keeps up to 16 free blocks and 64 MiB for later
// calls.
// Threads: one at a time.
class ScratchPool {
 public:
  struct ScratchBlock {
    struct Free {
      void operator()(std::byte* at) const noexcept { std::free(at); }
    };
    std::unique_ptr<std::byte, Free> at;
    size_t size = 0;
  };

  ScratchPool() { free_blocks_.reserve(kMaxFreeBlocks); }

  // Returns: a block of at least `bytes`, aligned to a cache line; an empty block for 0.
  // Throws: std::bad_alloc.
  ScratchBlock acquire(size_t bytes) {
    if (bytes == 0) return {};
    size_t best = free_blocks_.size();
    for (size_t i = 0; i < free_blocks_.size(); ++i)
      if (free_blocks_[i].size >= bytes &&
          (best == free_blocks_.size() || free_blocks_[i].size < free_blocks_[best].size))
        best = i;
    if (best == free_blocks_.size()) return allocate((bytes + kUnit - 1) / kUnit * kUnit);
    std::swap(free_blocks_[best], free_blocks_.back());
    ScratchBlock block = std::move(free_blocks_.back());
    free_blocks_.pop_back();
    free_bytes_ -= block.size;
    return block;
  }
  void release(ScratchBlock block) noexcept {
    if (block.at == nullptr || free_blocks_.size() == kMaxFreeBlocks ||
        free_bytes_ + block.size > kMostBytes)
      return;
    free_bytes_ += block.size;
    free_blocks_.push_back(std::move(block));
  }

 private:
  static constexpr size_t kUnit = 4096, kMaxFreeBlocks = 16, kMostBytes = 64u << 20;

  static ScratchBlock allocate(size_t size) {
    ScratchBlock block{{static_cast<std::byte*>(std::aligned_alloc(64, size)), {}}, size};
    if (block.at == nullptr) throw std::bad_alloc();
    return block;
  }

  std::vector<ScratchBlock> free_blocks_;
  size_t free_bytes_ = 0;
};

}  // namespace torch::comms::ctran
