#pragma once

#include <cstddef>
#include <memory>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// So much of what the thread that makes it allocates and frees stays the process's, where the
// system's allocator would give it back: whatever allocates as much again finds pages that have
// been touched. What is freed last below something that is not, goes back to nobody.
//
// Ends on the same thread. With allocators that keep memory anyway it changes nothing.
class TC_API HeapRetainer {
 public:
  // Takes addresses for it, and a page in each of a few hundred blocks. Where there is no memory,
  // none is kept.
  explicit HeapRetainer(size_t size_bytes) noexcept;

 private:
  std::unique_ptr<std::byte[]> blocker_;
};

}  // namespace torch::comms::base
