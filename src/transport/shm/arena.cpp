#include "transport/shm/arena.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "base/fork.hpp"
#include "base/system_error.hpp"
#include "transport/shm/segment.hpp"

namespace torch::comms::transport::shm {
namespace {

std::atomic<Arena*> the_arena{nullptr};

uint64_t memory_of_machine() noexcept {
  constexpr uint64_t kLeast = 1u << 30;
  const auto pages = std::max(0L, ::sysconf(_SC_PHYS_PAGES));
  return std::max(kLeast, static_cast<uint64_t>(pages) * PageBlocks::kPage);
}

}  // namespace

Arena& Arena::open() {
  static Arena* const arena = [] {
    auto* made = new Arena;  // never destroyed
    the_arena.store(made, std::memory_order_release);
    ::pthread_atfork(nullptr, nullptr, &Arena::become_private);
    return made;
  }();
  return *arena;
}

Arena* Arena::find() noexcept {
  auto* const arena = the_arena.load(std::memory_order_acquire);
  return arena != nullptr && arena->fork_generation_ == base::fork_generation() ? arena : nullptr;
}

Arena::Arena()
    : file_(create_memory("torchcomms-tensors", memory_of_machine())),
      mapping_(map_memory(file_, memory_of_machine())),
      fork_generation_(base::fork_generation()),
      blocks_(mapping_.bytes().size()) {
  struct stat found{};
  if (::fstat(file_.get(), &found) != 0) throw base::system_error("fstat");
  inode_ = found.st_ino;
}

// Nothing else runs in the child yet, and mmap() may be called there.
void Arena::become_private() noexcept {
  const auto& arena = *the_arena.load(std::memory_order_relaxed);
  const auto bytes = arena.mapping_.bytes();
  const auto* const at = ::mmap(bytes.data(), bytes.size(), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, arena.file_.get(), 0);
  // Writes would reach the parent.
  if (at == MAP_FAILED) ::_exit(127);
}

void* Arena::allocate(size_t bytes) noexcept {
  if (fork_generation_ != base::fork_generation()) return nullptr;
  try {
    const std::lock_guard lock(mutex_);
    const auto top = blocks_.top();
    const auto begin = blocks_.take(bytes);
    if (!begin) return nullptr;
    if (top == blocks_.top()) freed_ -= std::min(freed_, blocks_.size_of(*begin));
    return mapping_.bytes().data() + *begin;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Arena::release(void* at) noexcept {
  if (fork_generation_ != base::fork_generation()) return;
  const auto begin = static_cast<uint64_t>(static_cast<std::byte*>(at) - mapping_.bytes().data());
  const std::lock_guard lock(mutex_);
  freed_ += blocks_.size_of(begin);
  blocks_.give(begin);
  if (freed_ <= kKept) return;
  // Pages that the system does not take stay with the file, and are used again.
  blocks_.each_free([this](uint64_t first, uint64_t bytes) {
    ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                static_cast<off_t>(bytes));
  });
  freed_ = 0;
}

bool Arena::has(const void* at) const noexcept {
  const auto bytes = mapping_.bytes();
  return at >= bytes.data() && at < bytes.data() + bytes.size();
}

uint64_t Arena::in_use() const {
  const std::lock_guard lock(mutex_);
  return blocks_.in_use();
}

FilePlace Arena::place() const {
  base::FileDescriptor own(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) throw base::system_error("dup");
  return {std::move(own), inode_, 0};
}

}  // namespace torch::comms::transport::shm
