#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "transport/request.hpp"

namespace torch::comms::ctran {

// Memory for sums on their way, kept for the next call. Threads: one at a time.
class ScratchPool {
 public:
  struct Block {
    struct Free {
      void operator()(std::byte* at) const noexcept { std::free(at); }
    };
    std::unique_ptr<std::byte, Free> at;
    size_t size = 0;
  };

  ScratchPool() { kept_.reserve(kMostKept); }

  // At least `bytes`, aligned to a cache line; nothing for 0. Throws std::bad_alloc.
  Block take(size_t bytes) {
    if (bytes == 0) return {};
    size_t best = kept_.size();
    for (size_t i = 0; i < kept_.size(); ++i)
      if (kept_[i].size >= bytes && (best == kept_.size() || kept_[i].size < kept_[best].size))
        best = i;
    if (best == kept_.size()) return allocate((bytes + kUnit - 1) / kUnit * kUnit);
    std::swap(kept_[best], kept_.back());
    Block block = std::move(kept_.back());
    kept_.pop_back();
    kept_bytes_ -= block.size;
    return block;
  }
  void give(Block block) noexcept {
    if (block.at == nullptr || kept_.size() == kMostKept || kept_bytes_ + block.size > kMostBytes)
      return;
    kept_bytes_ += block.size;
    kept_.push_back(std::move(block));
  }

 private:
  static constexpr size_t kUnit = 4096, kMostKept = 16, kMostBytes = 64u << 20;

  static Block allocate(size_t size) {
    Block block{{static_cast<std::byte*>(std::aligned_alloc(64, size)), {}}, size};
    if (block.at == nullptr) throw std::bad_alloc();
    return block;
  }

  std::vector<Block> kept_;
  size_t kept_bytes_ = 0;
};

}  // namespace torch::comms::ctran
