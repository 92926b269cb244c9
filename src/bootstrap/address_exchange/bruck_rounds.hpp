#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace torch::comms::bootstrap {

// Who asks whom: the all-gather of Bruck, Ho, Kipnis, Upfal & Weathersby (IEEE Trans. Parallel
// Distrib. Syst. 8(11), 1997), by asking. Before round k a rank knows 2^k ranks from itself on,
// around the ring; it asks the rank after those for what that one knows. Any number of ranks.
struct BruckRounds {
  int rank = 0;
  int size = 1;

  int count() const noexcept {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(size - 1)));
  }
  // Whom this rank asks in a round, and who asks it.
  int source(int round) const noexcept {
    return static_cast<int>((int64_t{rank} + (1 << round)) % size);
  }
  int client(int round) const noexcept {
    return static_cast<int>((int64_t{rank} + size - (1 << round)) % size);
  }
  // How many blobs the answer of a round holds: those of its sender and the ranks after it.
  int blobs(int round) const noexcept { return std::min(1 << round, size - (1 << round)); }
  // An answer also says where the sender's own source of that round is, which is whom the asking
  // rank has to ask next. So a rank needs the store for its first neighbour alone.
  bool has_next(int round) const noexcept { return round + 1 < count(); }
};

inline constexpr int kMaxRounds = 20;  // of kMaxRanks

}  // namespace torch::comms::bootstrap
