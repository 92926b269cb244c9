#include "backends/nccl/streams/signal_communicators.hpp"

#include <bit>
#include <cstdint>

namespace torch::comms::nccl {
namespace {

// Returns: the number of subsets that have half of `communicators`.
int64_t count_sets(int communicators) {
  int64_t count = 1;
  for (int taken = 1; taken <= communicators / 2; ++taken)
    count = count * (communicators - taken + 1) / taken;
  return count;
}

// Returns: the set W(rank) as a bit mask. The sets are enumerated in ascending order, each from the
// one before by Gosper's hack.
uint64_t waits_of(int rank, int communicators) {
  uint64_t set = (uint64_t{1} << (communicators / 2)) - 1;
  for (int before = 0; before < rank; ++before) {
    const uint64_t lowest = set & -set, carried = set + lowest;
    set = carried | (((set ^ carried) / lowest) >> 2);
  }
  return set;
}

}  // namespace

int count_signal_communicators(int ranks) {
  if (ranks < 2) return 0;
  int communicators = 2;
  while (count_sets(communicators) < ranks) ++communicators;
  return communicators;
}

int signal_communicator_index(int from, int to, int ranks) {
  const int communicators = count_signal_communicators(ranks);
  return std::countr_zero(waits_of(to, communicators) & ~waits_of(from, communicators));
}

}  // namespace torch::comms::nccl
