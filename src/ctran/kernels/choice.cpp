#include "ctran/kernels/choice.hpp"

#include <algorithm>
#include <iterator>

#include "ctran/kernels/layout.hpp"
#include "ctran/kernels/plan.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr size_t kKB = 1024, kMB = 1024 * kKB, kAll = SIZE_MAX;

// One row holds for up to `ranks` ranks, and for up to so many bytes of Call::count: the first that
// does, does. Where its algorithm does not fit, the next one.
struct Row {
  Collective collective;
  int ranks;
  size_t bytes;
  Algorithm algorithm;
  int blocks;
};

using enum Algorithm;
// Two ranks: as measured on two H200. More: from what a hop costs there and what a GPU sends in a
// microsecond, 0.36 MB; one hop sends a tensor to each peer, two send it about twice in all.
constexpr Row kRows[] = {
    {Collective::kAllReduce, 2, 128 * kKB, kOneShotLL, 64},
    {Collective::kAllReduce, 2, 512 * kKB, kOneShotLine, 64},
    {Collective::kAllReduce, 2, kAll, kOneShotLine, 128},
    {Collective::kAllReduce, 4, 64 * kKB, kOneShotLL, 64},
    {Collective::kAllReduce, 4, 384 * kKB, kOneShotLine, 64},
    {Collective::kAllReduce, 8, 32 * kKB, kOneShotLL, 64},
    {Collective::kAllReduce, 8, 112 * kKB, kOneShotLine, 64},
    {Collective::kAllReduce, 8, kAll, kTwoShotLine, 64},

    {Collective::kBroadcast, 2, 128 * kKB, kOneShotLL, 64},
    {Collective::kBroadcast, 2, kAll, kOneShotLine, 128},
    {Collective::kBroadcast, 8, 32 * kKB, kOneShotLL, 64},
    {Collective::kBroadcast, 8, 256 * kKB, kOneShotLine, 64},
    {Collective::kBroadcast, 8, kAll, kTwoShotLine, 64},

    {Collective::kReduce, 2, 128 * kKB, kOneShotLL, 64},
    {Collective::kReduce, 2, kAll, kOneShotLine, 128},
    {Collective::kReduce, 8, 32 * kKB, kOneShotLL, 64},
    {Collective::kReduce, 8, 256 * kKB, kOneShotLine, 64},
    {Collective::kReduce, 8, kAll, kTwoShotLine, 64},
};
// All others: a hop, and bytes that each rank sends to each.
constexpr Row kOneHop[] = {
    {Collective::kAllGather, 2, 128 * kKB, kOneShotLL, 64},
    {Collective::kAllGather, 4, 32 * kKB, kOneShotLL, 64},
    {Collective::kAllGather, 8, 16 * kKB, kOneShotLL, 64},
    {Collective::kAllGather, 8, kAll, kOneShotLine, 128},
};

}  // namespace

Choice choose(int ranks, const Call& call) {
  const int cap = call.blocks == 0 ? kMostBlocks : std::min(call.blocks, kMostBlocks);
  if (call.collective == Collective::kBarrier) return {kOneShotLL, 1};
  const size_t bytes = call.count * size_of(call.dtype);
  const bool has_rows =
      std::ranges::find(kRows, call.collective, &Row::collective) != std::end(kRows);
  const Row* first = has_rows ? std::begin(kRows) : std::begin(kOneHop);
  const Row* last = has_rows ? std::end(kRows) : std::end(kOneHop);
  for (const Row* row = first; row != last; ++row) {
    if ((has_rows && row->collective != call.collective) || ranks > row->ranks ||
        bytes > row->bytes)
      continue;
    const int blocks = std::min(row->blocks, cap);
    if (fits(ranks, call, row->algorithm, blocks)) return {row->algorithm, blocks};
  }
  return {kAutomatic, cap};  // more than 2^20 steps
}

}  // namespace torch::comms::ctran::kernels
