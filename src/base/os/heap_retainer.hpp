#pragma once

#include <cstddef>
#include <memory>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Keeps `size_bytes` of the creating thread's heap in the process, which the allocator would
// otherwise return to the system. Later allocations of that size then find pages that are already
// mapped. It works because glibc cannot trim free memory that lies below an allocated block, and
// the retainer keeps one such block.
//
// With allocators that keep memory anyway, it has no effect.
// Threads: destroy it on the thread that created it.
class TC_API HeapRetainer {
 public:
  // Allocates a few hundred blocks, touches about one page of each, and frees all but the last. If
  // memory is short, nothing is retained.
  explicit HeapRetainer(size_t size_bytes) noexcept;

 private:
  std::unique_ptr<std::byte[]> blocker_;
};

}  // namespace torch::comms::base
