#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "schedule/action.hpp"

namespace torch::comms::schedule {

// Returns: the smallest k with 2^k >= n, for n >= 1.
inline int ceil_log2(int n) noexcept {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
}

// Lets algorithms that need a power of two run on any number of ranks. The first 2 * extra() ranks
// form pairs of neighbors. The odd rank of a pair sends its data to the even one before, and
// receives the result from it after. The even ranks of pairs and all unpaired ranks are the core.
// Pairs are neighbors, so that each pair's blocks are consecutive and additions stay in rank order.
class Fold {
 public:
  explicit Fold(int size) noexcept
      : core_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))),
        extra_(size - core_) {}

  int core() const noexcept { return core_; }    // number of core ranks, a power of two
  int extra() const noexcept { return extra_; }  // number of pairs
  // Returns: log2(core()), the rounds of an algorithm that doubles or halves in each round.
  int rounds() const noexcept { return std::countr_zero(static_cast<unsigned>(core_)); }
  // Returns: the steps of an algorithm that takes `core_steps` steps in the core.
  int64_t steps(int64_t core_steps) const noexcept { return core_steps + (extra_ > 0 ? 2 : 0); }

  bool is_paired(int rank) const noexcept { return rank < 2 * extra_; }
  bool is_in_core(int rank) const noexcept { return !is_paired(rank) || rank % 2 == 0; }
  // Returns: the core index of a rank in the core.
  int index(int rank) const noexcept { return is_paired(rank) ? rank / 2 : rank - extra_; }
  // Returns: the rank of a core index; the number of ranks for index core(). Indices [i, j) stand
  // for ranks [rank(i), rank(j)), pairs included.
  int rank(int index) const noexcept { return index + std::min(index, extra_); }

 private:
  int core_, extra_;
};

// Append the two outer steps of a folded all_reduce of whole buffers of `count` elements to `out`.
// fold_sums() puts the sum of each pair into the output of its even rank; unfold_result() sends the
// result back. They do nothing for unpaired ranks.
void fold_sums(const Fold& fold, int rank, int64_t count, Step& out);
void unfold_result(const Fold& fold, int rank, int64_t count, Step& out);

}  // namespace torch::comms::schedule
