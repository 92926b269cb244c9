#pragma once

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"

// Ranks in a line, chunks one after the other along it: bandwidth of a single copy once the
// pipeline is full, and sums exactly in rank order.
namespace torch::comms::schedule {

// Step t of adding up along ranks 0, 1, ..., size - 1: rank r adds its input to what comes from r -
// 1, keeps the sum in `sum` (rank 0: nothing, it sends its input) and sends it to r + 1. The last
// rank has chunk c after step c + size - 2.
inline void chain_reduce(int rank, int size, const Chunks& chunks, Buffer sum, int64_t t,
                         Step& out) {
  const int64_t arriving = t - (rank - 1), leaving = t - rank;
  if (rank > 0)
    out.receive_reduce(rank - 1, chunks.in(Buffer::kInput, arriving), chunks.in(sum, arriving),
                       LeftOperand::kIncoming);
  if (rank < size - 1) out.send(rank + 1, chunks.in(rank == 0 ? Buffer::kInput : sum, leaving));
}

// Step t of copying the output along a line in which this rank is number `place` and its neighbours
// are `previous` and `next`. The last place has chunk c after step c + size - 2.
inline void chain_broadcast(int place, int size, int previous, int next, const Chunks& chunks,
                            int64_t t, Step& out) {
  if (place > 0) out.receive(previous, chunks.in(Buffer::kOutput, t - (place - 1)));
  if (place < size - 1) out.send(next, chunks.in(Buffer::kOutput, t - place));
}

}  // namespace torch::comms::schedule
