#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "base/os/handles.hpp"
#include "transport/protocol/region_table.hpp"
#include "transport/shm/page_allocator.hpp"

namespace torch::comms::transport::shm {

// Memory of this process that the ranks of its host map as a whole, so that they read messages or
// reduce them where they lie. It is one file without a name, as large as the machine's memory, but
// at most kMaxBytes and the limit of RLIMIT_FSIZE. reserve_memory() says when its pages are taken.
// Core dumps leave it out.
//
// Forked children keep what they find there as private memory: only they and their own children see
// what they write. They can neither allocate nor release. Pages that a child has not written are
// the parent's: the child sees what the parent writes there later, also after the parent has
// released them.
// Threads: any.
// Lifetime: there is one arena per process, which is never destroyed, because its memory may be in
// use until the end.
class TC_API SharedArena {
 public:
  // Bytes of address space. The mapping of each peer's arena takes as much.
  static constexpr uint64_t kMaxBytes = 256ull << 30;

  // Returns: the arena; the first call makes it.
  // Throws: CommError(kResourceExhausted).
  static SharedArena& open();
  // Returns: the arena; nullptr before open(), and in a forked child.
  static SharedArena* find() noexcept;

  // Returns: memory that begins at a page; nullptr if there is no room, or in a forked child. It is
  // zeroed only if it was never in use.
  void* allocate(size_t bytes) noexcept;
  // Frees memory of allocate(). If more than kMaxFreeBytes are free, all free pages return to the
  // system.
  void release(void* at) noexcept;
  bool contains(const void* at) const noexcept;
  // Returns: allocated bytes, in whole pages.
  uint64_t in_use() const;

  // bytes() returns all of the arena; file_location() where peers find it.
  // Throws: CommError(kSystem) if no descriptor is left.
  Bytes bytes() const noexcept { return mapping_.bytes(); }
  FileLocation file_location() const;

 private:
  static constexpr uint64_t kMaxFreeBytes = 256u << 20;  // bytes

  SharedArena();
  static void become_private() noexcept;  // runs in a forked child
  bool is_of_parent() const noexcept;
  bool reserve(uint64_t begin);

  base::FileDescriptor file_;
  base::Mapping mapping_;
  uint64_t inode_ = 0, fork_generation_;
  mutable std::mutex mutex_;  // guards all below
  PageAllocator blocks_;
  uint64_t free_bytes_ = 0;       // of free blocks that may have pages
  std::atomic<uint64_t> top_{0};  // top() of blocks_, for readers without the lock
};

// Maps a peer's arena as its handle describes it. All transports of this process share one mapping
// of it. `file` is the file of the handle.
// Throws: CommError(kResourceExhausted, kSystem).
// Threads: any.
std::shared_ptr<const base::Mapping> map_arena(int process, const MemoryHandle& handle,
                                               const base::FileDescriptor& file);

}  // namespace torch::comms::transport::shm
