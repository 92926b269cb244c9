#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "schedule/action.hpp"

namespace torch::comms::schedule {

// Smallest k with 2^k >= n, for n >= 1.
inline int ceil_log2(int n) noexcept {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
}

// Any number of ranks for algorithms that want a power of two: the first 2 * extra() ranks are
// pairs of neighbours, in which the odd one hands its data to the even one before and takes the
// result from it after. The even ranks of pairs and all others are the core. Neighbours, so that
// each pair's blocks are consecutive and additions stay in rank order.
class Fold {
 public:
  explicit Fold(int size) noexcept
      : core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        extra_(size - core_) {}

  int core() const noexcept { return core_; }    // how many ranks, a power of two
  int extra() const noexcept { return extra_; }  // how many pairs
  int rounds() const noexcept { return std::countr_zero(static_cast<unsigned>(core_)); }
  // Steps of an algorithm with `core_steps` steps in the core.
  int64_t steps(int64_t core_steps) const noexcept { return core_steps + (extra_ > 0 ? 2 : 0); }

  bool is_paired(int rank) const noexcept { return rank < 2 * extra_; }
  bool is_in_core(int rank) const noexcept { return !is_paired(rank) || rank % 2 == 0; }
  // Of a rank in the core.
  int index(int rank) const noexcept { return is_paired(rank) ? rank / 2 : rank - extra_; }
  // Of a core index; `core()` gives the number of ranks: indices [i, j) stand for ranks
  // [rank(i), rank(j)), pairs included.
  int rank(int index) const noexcept { return index + std::min(index, extra_); }

 private:
  int core_, extra_;
};

// The two outer steps of a folded all_reduce of the whole buffers: sums of pairs go to the output
// of their even rank; results come back. Nothing for ranks without a partner.
void fold_sums(const Fold& fold, int rank, int64_t count, Step& out);
void unfold_result(const Fold& fold, int rank, int64_t count, Step& out);

}  // namespace torch::comms::schedule
