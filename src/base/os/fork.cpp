#include "base/os/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace torch::comms::base {
namespace {

std::atomic<uint64_t> generation{0};

// Registered when the library is loaded. An atfork handler cannot be removed; that is safe because
// the library is never unloaded.
const int registered = ::pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });

}  // namespace

uint64_t fork_generation() noexcept {
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace torch::comms::base
