#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "base/handles.hpp"
#include "transport/regions.hpp"
#include "transport/shm/page_blocks.hpp"

namespace torch::comms::transport::shm {

// Memory of this process that the ranks of its host map as a whole, so that they take messages out
// of it, or reduce them, where they lie. One file without a name, as large as the machine's memory,
// of which a page is taken when it is first written.
//
// Threads: any. One a process, for good: what it has handed out may be in use to the end.
// Forked children have what they find there as memory of their own: what they write, nobody else
// sees. They get none and give none back; to pages that they have not written, what the parent
// writes later is seen.
class TC_API Arena {
 public:
  // Made by the first call. Throws CommError(kResourceExhausted, kSystem).
  static Arena& open();
  // nullptr before open(), and in a forked child.
  static Arena* find() noexcept;

  // Begins at a page, and is zeroed only where nobody had it before; nullptr where there is no
  // room, or in a forked child.
  void* allocate(size_t bytes) noexcept;
  // Of allocate(). What is free and more than kKept goes back to the system.
  void release(void* at) noexcept;
  bool has(const void* at) const noexcept;
  // Bytes that are handed out, in whole pages.
  uint64_t in_use() const;

  // All of it, and where others find it. Throws CommError(kSystem) without a descriptor.
  Bytes bytes() const noexcept { return mapping_.bytes(); }
  FilePlace place() const;

 private:
  static constexpr uint64_t kKept = 256u << 20;  // bytes

  Arena();
  static void become_private() noexcept;  // in a forked child

  base::FileDescriptor file_;
  base::Mapping mapping_;
  uint64_t inode_ = 0, fork_generation_;
  mutable std::mutex mutex_;  // guards all below
  PageBlocks blocks_;
  uint64_t freed_ = 0;  // bytes of free blocks that may have pages
};

}  // namespace torch::comms::transport::shm
