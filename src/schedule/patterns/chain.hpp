#pragma once

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"

// The chain: ranks form a line, and chunks move along it one after the other. A full pipeline has
// the bandwidth of a single copy, and sums are exactly in rank order.
namespace torch::comms::schedule {

// Appends step t of a reduction along ranks 0, 1, ..., size - 1. Rank r adds its input to the data
// of rank r - 1, stores the sum in `sum` and sends it to rank r + 1. Rank 0 sends its input. The
// last rank has chunk c after step c + size - 2.
inline void chain_reduce(int rank, int size, const Chunks& chunks, Buffer sum, int64_t t,
                         Step& out) {
  const int64_t arriving = t - (rank - 1), leaving = t - rank;
  if (rank > 0)
    out.receive_reduce(rank - 1, chunks.in(Buffer::kInput, arriving), chunks.in(sum, arriving),
                       LeftOperand::kIncoming);
  if (rank < size - 1) out.send(rank + 1, chunks.in(rank == 0 ? Buffer::kInput : sum, leaving));
}

// Appends step t of a broadcast of the output along a line. This rank has number `place` in the
// line, between `previous` and `next`. The last place has chunk c after step c + size - 2.
inline void chain_broadcast(int place, int size, int previous, int next, const Chunks& chunks,
                            int64_t t, Step& out) {
  if (place > 0) out.receive(previous, chunks.in(Buffer::kOutput, t - (place - 1)));
  if (place < size - 1) out.send(next, chunks.in(Buffer::kOutput, t - place));
}

}  // namespace torch::comms::schedule
