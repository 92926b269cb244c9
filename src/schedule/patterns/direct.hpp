#pragma once

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"

// The direct exchange: every rank sends to every other rank in one step, with size - 1 messages per
// rank. Rank r begins with the ranks after it, so that no rank is the first target of all.
namespace torch::comms::schedule {

// Sends `to(peer)` to every peer and receives `from(peer)` from it; empty ranges are left out.
template <class To, class From>
void exchange_with_all(int rank, int size, const To& to, const From& from, Step& out) {
  for (int d = 1; d < size; ++d) {
    const int target = rank + d < size ? rank + d : rank + d - size;
    const int source = rank >= d ? rank - d : rank - d + size;
    out.send(target, to(target));
    out.receive(source, from(source));
  }
}

// Returns: the scratch range of a peer's contribution of `count` elements. Contributions are stored
// in rank order, without this rank's own.
Range contribution_range(int rank, int peer, int64_t count) noexcept;

// Appends local actions that add in rank order: into = ((x0 + x1) + x2) + ... . The contribution of
// this rank is `mine`; those of the peers are at contribution_range(), and are overwritten. If
// `into` overlaps `mine`, it is `mine`. Requires at least two ranks.
void reduce_in_rank_order(int rank, int size, Range mine, Range into, Step& out);

// Both functions below move chunk t of every block; they do nothing for other t. A caller that
// moves all chunks.count() chunks of the largest block one after the other needs scratch for one
// chunk only.
//
// direct_reduce_scatter() sends input block j to rank j. The sum of the own block's chunk, in rank
// order, goes to `into`. It needs scratch of size - 1 times that chunk.

// Of input block j to rank j; the sum of the own block's chunk, in rank order, to `into`.
// Scratch: size - 1 times that chunk.
void direct_reduce_scatter(int rank, const Blocks& blocks, const Chunks& chunks, int64_t t,
                           Range into, Step& out);

// Sends `mine`, the own block's chunk, to all ranks; the chunks of the peers go to the output.
void direct_all_gather(int rank, const Blocks& blocks, const Chunks& chunks, int64_t t, Range mine,
                       Step& out);

}  // namespace torch::comms::schedule
