#include "core/rendezvous/global_rank.hpp"

#include <algorithm>
#include <cstdint>
#include <mutex>

#include <torchcomms/base/error.hpp>

#include "base/os/fork.hpp"
#include "bootstrap/launcher.hpp"

namespace torch::comms {
namespace {

// Returns: the size of the largest communicator of this process so far, including `size`.
int largest_with(int size) {
  static std::mutex mutex;  // guards generation and largest
  static uint64_t generation = 0;
  static int largest = 0;
  const std::lock_guard lock(mutex);
  // A forked child counts as a process of another job.
  if (generation != base::fork_generation()) largest = 0;
  generation = base::fork_generation();
  return largest = std::max(largest, size);
}

std::optional<bootstrap::LaunchInfo> job() {
  try {
    return bootstrap::discover_job();
  } catch (const CommError&) {
    return std::nullopt;  // the variables have other contents
  }
}

}  // namespace

std::optional<int> global_rank_if_subset(int size) {
  const auto largest = largest_with(size);
  if (const auto launched = job(); launched && size < launched->size) return launched->rank;
  return size < largest ? std::optional(-1) : std::nullopt;
}

}  // namespace torch::comms
