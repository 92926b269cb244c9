#include "transport/shm/shared_arena.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/fork.hpp"
#include "base/os/system_error.hpp"
#include "transport/shm/shm_segment.hpp"

namespace torch::comms::transport::shm {
namespace {

std::atomic<SharedArena*> the_arena{nullptr};
bool is_private = false;  // in a forked child and its children

// Returns: the machine's memory in bytes, but at most the size that a file of this process may
// have.
uint64_t capacity() noexcept {
  constexpr uint64_t kLeast = 1u << 30;
  const auto pages = std::max(0L, ::sysconf(_SC_PHYS_PAGES));
  const auto wanted = std::clamp(static_cast<uint64_t>(pages) * PageAllocator::kPageBytes, kLeast,
                                 SharedArena::kMaxBytes);
  rlimit file{};
  const bool limited =
      ::getrlimit(RLIMIT_FSIZE, &file) == 0 && file.rlim_cur >= PageAllocator::kPageBytes;
  return limited ? std::min<uint64_t>(wanted, file.rlim_cur / PageAllocator::kPageBytes *
                                                  PageAllocator::kPageBytes)
                 : wanted;
}

}  // namespace

SharedArena& SharedArena::open() {
  static SharedArena* const arena = [] {
    auto* created = new SharedArena;  // never destroyed
    the_arena.store(created, std::memory_order_release);
    ::pthread_atfork(nullptr, nullptr, &SharedArena::become_private);
    return created;
  }();
  return *arena;
}

SharedArena* SharedArena::find() noexcept {
  auto* const arena = the_arena.load(std::memory_order_acquire);
  return arena != nullptr && !arena->is_of_parent() ? arena : nullptr;
}

SharedArena::SharedArena()
    : file_(create_memory("torchcomms-tensors", capacity())),
      mapping_(map_memory(file_, capacity())),
      fork_generation_(base::fork_generation()),
      blocks_(mapping_.bytes().size()) {
  struct stat found{};
  if (::fstat(file_.get(), &found) != 0) throw base::system_error("fstat");
  inode_ = found.st_ino;
  ::madvise(mapping_.bytes().data(), mapping_.bytes().size(), MADV_DONTDUMP);
}

// Only this thread exists in the child yet, and mmap() may be called there. Pages that were never
// in use are only kept free of other memory: the system need not commit pages for them.
void SharedArena::become_private() noexcept {
  if (std::exchange(is_private, true)) return;  // its pages are copies of its parent's
  const auto& arena = *the_arena.load(std::memory_order_relaxed);
  const auto bytes = arena.mapping_.bytes();
  const auto used = arena.top_.load(std::memory_order_relaxed);
  const auto remap = [](std::span<std::byte> part, int rights, int kind, int file) {
    return part.empty() ||
           ::mmap(part.data(), part.size(), rights, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE | kind,
                  file, 0) != MAP_FAILED;
  };
  const bool done = remap(bytes.first(used), PROT_READ | PROT_WRITE, 0, arena.file_.get()) &&
                    remap(bytes.subspan(used), PROT_NONE, MAP_ANONYMOUS, -1);
  ::madvise(bytes.data(), used, MADV_DONTDUMP);
  if (done) return;
  // The child must not continue: its writes would reach the parent.
  constexpr std::string_view kWhy =
      "torchcomms: the forked child exits with code 127: the system has no memory for its private "
      "copy of the tensors of share_cpu_tensors(); allow overcommitted memory "
      "(vm.overcommit_memory), or fork before the call of share_cpu_tensors()\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kWhy.data(), kWhy.size());
  ::_exit(127);
}

bool SharedArena::is_of_parent() const noexcept {
  return fork_generation_ != base::fork_generation();
}

void* SharedArena::allocate(size_t bytes) noexcept {
  if (is_of_parent()) return nullptr;
  try {
    const std::lock_guard lock(mutex_);
    const auto top = blocks_.top();
    const auto begin = blocks_.allocate(bytes);
    if (!begin || !reserve(*begin)) return nullptr;
    top_.store(blocks_.top(), std::memory_order_relaxed);
    if (top == blocks_.top()) free_bytes_ -= std::min(free_bytes_, blocks_.size_of(*begin));
    return mapping_.bytes().data() + *begin;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

// Returns: false if the system has no pages for the block, which is then free again.
bool SharedArena::reserve(uint64_t begin) {
  try {
    reserve_memory(file_, blocks_.size_of(begin), begin);
    return true;
  } catch (const CommError&) {
    blocks_.release(begin);
    return false;
  }
}

void SharedArena::release(void* at) noexcept {
  if (is_of_parent()) return;
  const auto begin = static_cast<uint64_t>(static_cast<std::byte*>(at) - mapping_.bytes().data());
  const std::lock_guard lock(mutex_);
  try {
    free_bytes_ += blocks_.size_of(begin);
    blocks_.release(begin);
  } catch (const std::bad_alloc&) {
    return;  // the block stays in use
  }
  if (free_bytes_ <= kMaxFreeBytes) return;
  // Pages that fallocate() does not free stay with the file and are reused.
  blocks_.for_each_free([this](uint64_t first, uint64_t bytes) {
    ::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                static_cast<off_t>(bytes));
  });
  free_bytes_ = 0;
}

bool SharedArena::contains(const void* at) const noexcept {
  const auto bytes = mapping_.bytes();
  return at >= bytes.data() && at < bytes.data() + bytes.size();
}

uint64_t SharedArena::in_use() const {
  const std::lock_guard lock(mutex_);
  return blocks_.in_use();
}

FileLocation SharedArena::file_location() const {
  base::FileDescriptor own(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!own) throw base::system_error("dup");
  return {std::move(own), inode_, 0};
}

std::shared_ptr<const base::Mapping> map_arena(int process, const MemoryHandle& handle,
                                               const base::FileDescriptor& file) {
  struct MappedArena {
    int process;
    uint64_t file, address;
    std::weak_ptr<const base::Mapping> mapping;
  };
  static std::mutex mutex;  // guards known
  // Never destroyed, because transports may live longer.
  static auto& known = *new std::vector<MappedArena>;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& one) { return one.mapping.expired(); });
  for (const auto& one : known)
    if (one.process == process && one.file == handle.file && one.address == handle.address)
      if (auto mapping = one.mapping.lock()) return mapping;
  auto created = std::make_shared<const base::Mapping>(map_memory(file, handle.size));
  ::madvise(created->bytes().data(), created->bytes().size(), MADV_DONTDUMP);
  known.push_back({process, handle.file, handle.address, created});
  return created;
}

}  // namespace torch::comms::transport::shm
