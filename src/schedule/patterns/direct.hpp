#pragma once

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"

// Everybody talks to everybody, in one step: one hop, size - 1 messages a rank. Rank r begins with
// the peers after it, so that no rank is everybody's first target.
namespace torch::comms::schedule {

// Sends `to(peer)` to every peer and receives `from(peer)`; empty ranges are left out.
template <class To, class From>
void exchange_with_all(int rank, int size, const To& to, const From& from, Step& out) {
  for (int d = 1; d < size; ++d) {
    const int target = rank + d < size ? rank + d : rank + d - size;
    const int source = rank >= d ? rank - d : rank - d + size;
    out.send(target, to(target));
    out.receive(source, from(source));
  }
}

// Contributions of `count` elements, one a peer, wait in scratch, in rank order without the own
// one.
Range contribution_range(int rank, int peer, int64_t count) noexcept;

// into = ((x0 + x1) + x2) + ..., local: `mine` is this rank's, the others' are where
// contribution_range() says. Uses up the contributions; if `into` overlaps `mine`, it is `mine`.
// For at least two ranks.
void reduce_in_rank_order(int rank, int size, Range mine, Range into, Step& out);

// Both move chunk t of every block; a caller that does so for all chunks.count() of the largest
// block one after the other needs scratch for one only. Nothing happens for other t.

// Of input block j to rank j; the sum of the own block's chunk, in rank order, to `into`.
// Scratch: size - 1 times that chunk.
void direct_reduce_scatter(int rank, const Blocks& blocks, const Chunks& chunks, int64_t t,
                           Range into, Step& out);

// `mine`, the own block's chunk, goes to everybody, the others' to the output.
void direct_all_gather(int rank, const Blocks& blocks, const Chunks& chunks, int64_t t, Range mine,
                       Step& out);

}  // namespace torch::comms::schedule
