#include "transport/shm/cma.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace torch::comms::transport::shm {
namespace {

// Bytes of one system call; the kernel moves less than 2 GiB at a time.
constexpr size_t kAtOnce = 1u << 30;

using CmaSystemCall = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long,
                                  unsigned long);

CmaResult copy(CmaSystemCall call, int pid, void* local, uint64_t remote, size_t size) noexcept {
  auto* at = static_cast<std::byte*>(local);
  while (size > 0) {
    const iovec mine{at, std::min(size, kAtOnce)};
    // An address in the peer's memory.  NOLINTNEXTLINE(performance-no-int-to-ptr)
    const iovec theirs{reinterpret_cast<void*>(remote), mine.iov_len};
    const auto moved = call(pid, &mine, 1, &theirs, 1, 0);
    if (moved <= 0 && errno == ESRCH) return CmaResult::kPeerExited;
    if (moved <= 0) return errno == EFAULT ? CmaResult::kClosed : CmaResult::kForbidden;
    at += moved;
    remote += static_cast<uint64_t>(moved);
    size -= static_cast<size_t>(moved);
  }
  return CmaResult::kDone;
}

}  // namespace

CmaResult cma_probe(int pid, uint64_t key_address, uint32_t key) noexcept {
  uint32_t found = 0;
  const auto copied = copy(::process_vm_readv, pid, &found, key_address, sizeof found);
  if (copied != CmaResult::kDone) return copied;
  return found == key ? CmaResult::kDone : CmaResult::kClosed;
}

CmaResult cma_read(int pid, uint64_t address, Bytes into, uint64_t key_address,
                   uint32_t key) noexcept {
  const auto copied = copy(::process_vm_readv, pid, into.data(), address, into.size());
  // Checked after the copy: then the memory was open while it was read.
  return copied == CmaResult::kDone ? cma_probe(pid, key_address, key) : copied;
}

CmaResult cma_write(int pid, uint64_t address, ConstBytes from, uint64_t key_address,
                    uint32_t key) noexcept {
  do {
    const auto open = cma_probe(pid, key_address, key);
    if (open != CmaResult::kDone) return open;
    const auto next = from.first(std::min(from.size(), kMaxBytesAfterClose));
    const auto copied =
        copy(::process_vm_writev, pid, const_cast<std::byte*>(next.data()), address, next.size());
    if (copied != CmaResult::kDone) return copied;
    address += next.size();
    from = from.subspan(next.size());
  } while (!from.empty());
  return CmaResult::kDone;
}

CmaResult cma_read_message(int pid, const RemoteReadDescriptor& offer, uint64_t offset,
                           std::span<const Bytes> into) noexcept {
  std::array<iovec, RemoteReadDescriptor::kMaxSegments> mine, theirs;
  size_t mine_count = 0, theirs_count = 0;
  uint64_t bytes = 0;
  for (const auto& piece : into) {
    mine[mine_count++] = {piece.data(), piece.size()};
    bytes += piece.size();
  }
  offer.visit(offset, bytes, [&](uint64_t address, uint64_t size) {
    // An address in the peer's memory.  NOLINTNEXTLINE(performance-no-int-to-ptr)
    theirs[theirs_count++] = {reinterpret_cast<void*>(address), size};
  });
  const auto moved =
      ::process_vm_readv(pid, mine.data(), mine_count, theirs.data(), theirs_count, 0);
  if (moved >= 0 && static_cast<uint64_t>(moved) == bytes) return CmaResult::kDone;
  if (moved < 0 && errno == ESRCH) return CmaResult::kPeerExited;
  return moved < 0 && errno != EFAULT ? CmaResult::kForbidden : CmaResult::kUnreadable;
}

// The system checks the permission before the address, so an invalid address suffices.
bool is_cma_allowed(int pid) noexcept { return cma_probe(pid, 0, 0) != CmaResult::kForbidden; }

bool is_cma_available() noexcept {
  uint32_t value = 1, copied = 0;
  return copy(::process_vm_readv, ::getpid(), &copied, reinterpret_cast<uint64_t>(&value),
              sizeof value) == CmaResult::kDone &&
         copied == 1;
}

}  // namespace torch::comms::transport::shm
