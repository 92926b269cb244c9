#include "base/os/heap_retainer.hpp"

#include <new>
#include <utility>
#include <vector>

namespace torch::comms::base {
namespace {

// A block must stay below glibc's mmap threshold, which is 128 KB or more.
constexpr size_t kBlock_bytes = size_t{96} << 10;

}  // namespace

HeapRetainer::HeapRetainer(size_t size_bytes) noexcept {
  try {
    std::vector<std::unique_ptr<std::byte[]>> blocks;
    for (size_t taken = 0; taken < size_bytes; taken += kBlock_bytes)
      blocks.push_back(std::make_unique_for_overwrite<std::byte[]>(kBlock_bytes));
    if (!blocks.empty()) blocker_ = std::move(blocks.back());
  } catch (const std::bad_alloc&) {
    // The blocks allocated so far are free again. Without enough memory nothing is retained.
  }
}

}  // namespace torch::comms::base
