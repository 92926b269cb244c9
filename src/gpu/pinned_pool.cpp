#include "gpu/pinned_pool.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace torch::comms::gpu {
namespace {

constexpr size_t kSmallest = 4096;
constexpr size_t kStep = size_t{1} << 20;

// Rounds sizes up to a few values, so that blocks can be reused.
size_t block_bytes(size_t wanted) {
  if (wanted > kStep) return (wanted + kStep - 1) / kStep * kStep;
  return std::bit_ceil(std::max(wanted, kSmallest));
}

}  // namespace

std::shared_ptr<PinnedPool> PinnedPool::make(std::shared_ptr<const Runtime> runtime,
                                             size_t most_idle_bytes) {
  return std::shared_ptr<PinnedPool>(new PinnedPool(std::move(runtime), most_idle_bytes));
}

PinnedPool::~PinnedPool() {
  const CaptureModeGuard mode(*runtime_);
  for (const auto& [size_bytes, at] : idle_) runtime_->free_pinned(at);
}

std::shared_ptr<void> PinnedPool::acquire(size_t size_bytes) {
  const size_t needed = block_bytes(size_bytes);
  void* at = nullptr;
  size_t found_bytes = needed;
  {
    const std::lock_guard lock(mutex_);
    // Blocks of more than twice the size are left for larger requests.
    const auto found = idle_.lower_bound(needed);
    if (found != idle_.end() && found->first <= 2 * needed) {
      found_bytes = found->first;
      at = found->second;
      idle_bytes_ -= found_bytes;
      idle_.erase(found);
    }
  }
  if (at == nullptr) at = runtime_->allocate_pinned(needed);
  return {at, [pool = shared_from_this(), found_bytes](void* block) {
            pool->release(block, found_bytes);
          }};
}

void PinnedPool::release(void* at, size_t size_bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (idle_bytes_ + size_bytes <= max_idle_bytes_) {
      idle_.emplace(size_bytes, at);
      idle_bytes_ += size_bytes;
      return;
    }
  }
  const CaptureModeGuard mode(*runtime_);
  runtime_->free_pinned(at);
}

size_t PinnedPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

}  // namespace torch::comms::gpu
