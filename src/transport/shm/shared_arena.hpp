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

// Memory of this process that the ranks of its host map as a whole, so that they take messages out
// of it, or reduce them, where they lie. One file without a name, as large as the machine's memory
// but at most kMaxBytes and what RLIMIT_FSIZE allows. reserve_memory() says when its pages are
// taken. No core dump has it.
//
// Threads: any. One a process, for good: what it has handed out may be in use to the end.
// Forked children have what they find there as memory of their own: what they write, nobody else
// but children of theirs sees. They get none and give none back. Pages that they have not written
// are the parent's: they see what it writes there later, also after it has freed them.
class TC_API SharedArena {
 public:
  static constexpr uint64_t kMaxBytes = 256ull << 30;  // of address space, once for each peer, too

  // Made by the first call. Throws CommError(kResourceExhausted).
  static SharedArena& open();
  // nullptr before open(), and in a forked child.
  static SharedArena* find() noexcept;

  // Begins at a page, and is zeroed only where nobody had it before; nullptr where there is no
  // room, or in a forked child.
  void* allocate(size_t bytes) noexcept;
  // Of allocate(). What is free and more than kMaxFreeBytes goes back to the system.
  void release(void* at) noexcept;
  bool contains(const void* at) const noexcept;
  // Bytes that are handed out, in whole pages.
  uint64_t in_use() const;

  // All of it, and where others find it. Throws CommError(kSystem) without a descriptor.
  Bytes bytes() const noexcept { return mapping_.bytes(); }
  FileLocation file_location() const;

 private:
  static constexpr uint64_t kMaxFreeBytes = 256u << 20;  // bytes

  SharedArena();
  static void become_private() noexcept;  // in a forked child
  bool is_of_parent() const noexcept;
  bool reserve(uint64_t begin);

  base::FileDescriptor file_;
  base::Mapping mapping_;
  uint64_t inode_ = 0, fork_generation_;
  mutable std::mutex mutex_;  // guards all below
  PageAllocator blocks_;
  uint64_t free_bytes_ = 0;       // bytes of free blocks that may have pages
  std::atomic<uint64_t> top_{0};  // of blocks_, for who has no lock
};

// A peer's arena, as its handle says: one mapping for all links of this process to that one.
// `file` is the handle's. Any thread. Throws CommError(kResourceExhausted, kSystem).
std::shared_ptr<const base::Mapping> map_arena(int process, const MemoryHandle& handle,
                                               const base::FileDescriptor& file);

}  // namespace torch::comms::transport::shm
