#include "transport/shm/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace torch::comms::transport::shm {
namespace {

long membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0); }

bool enlist() noexcept {
#if defined(__SANITIZE_THREAD__)  // it knows no fences
  return false;
#else
  return membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
#endif
}

}  // namespace

bool can_fence_peers() noexcept {
  static const bool can = enlist();
  return can;
}

void fence_peers() noexcept {
#if !defined(__SANITIZE_THREAD__)
  if (can_fence_peers()) membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace torch::comms::transport::shm
