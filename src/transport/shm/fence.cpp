#include "transport/shm/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace torch::comms::transport::shm {

#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer has no fences

bool can_fence_peers() noexcept { return false; }
void fence_peers() noexcept {}

#else

namespace {

long membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0); }

}  // namespace

bool can_fence_peers() noexcept {
  static const bool can = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
  return can;
}

void fence_peers() noexcept {
  if (can_fence_peers()) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

#endif

}  // namespace torch::comms::transport::shm
