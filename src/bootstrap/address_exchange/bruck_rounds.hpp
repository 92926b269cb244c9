#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace torch::comms::bootstrap {

// The communication pattern: the all-gather of Bruck, Ho, Kipnis, Upfal & Weathersby (IEEE Trans.
// Parallel Distrib. Syst. 8(11), 1997), by requests. Before round k a rank has the blobs of 2^k
// ranks, itself and those after it in the ring. In round k it asks the rank after those for the
// blobs which that rank has. It works for any number of ranks.
struct BruckRounds {
  int rank = 0;
  int size = 1;

  int count() const noexcept {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1)));
  }
  // The rank that this rank asks in a round, and the rank that asks this rank.
  int source(int round) const noexcept {
    return static_cast<int>((int64_t{rank} + (1 << round)) % size);
  }
  int client(int round) const noexcept {
    return static_cast<int>((int64_t{rank} + size - (1 << round)) % size);
  }
  // The number of blobs in the response of a round: of its sender and the ranks after the sender.
  int blobs(int round) const noexcept { return std::min(1 << round, size - (1 << round)); }
  // Returns whether the response of `round` also has the address of the sender's own source of that
  // round. That is the rank which the requester asks next. So a rank needs the store only for its
  // first neighbor's address.
  bool has_next(int round) const noexcept { return round + 1 < count(); }
};

inline constexpr int kMaxRounds = 20;  // for kMaxRanks ranks

}  // namespace torch::comms::bootstrap
