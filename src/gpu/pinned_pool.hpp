#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "gpu/runtime.hpp"

namespace torch::comms::gpu {

// A pool of reusable page-locked host memory, whose allocation takes milliseconds.
//
// Threads: any.
// Lifetime: the pool lives as long as any of its blocks.
class TC_API PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // `most_idle_bytes`: the maximum of unused memory that is kept.
  static std::shared_ptr<PinnedPool> make(std::shared_ptr<const Runtime> runtime,
                                          size_t most_idle_bytes);
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // Returns at least `size_bytes` of uninitialized memory. It returns to the pool with its last
  // owner.
  // Throws: CommError(kVendor) if no memory can be allocated.
  std::shared_ptr<void> acquire(size_t size_bytes);

  size_t idle_bytes() const;

 private:
  PinnedPool(std::shared_ptr<const Runtime> runtime, size_t most_idle_bytes)
      : runtime_(std::move(runtime)), max_idle_bytes_(most_idle_bytes) {}
  void release(void* at, size_t size_bytes) noexcept;

  const std::shared_ptr<const Runtime> runtime_;
  const size_t max_idle_bytes_;
  mutable std::mutex mutex_;  // guards all below
  std::multimap<size_t, void*> idle_;
  size_t idle_bytes_ = 0;
};

}  // namespace torch::comms::gpu
