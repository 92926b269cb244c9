#pragma once

#include <cstdint>

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"

namespace torch::comms::schedule {

// A rank's position in a ring, counted from the rank where the ring begins, and its neighbors.
struct RingPosition {
  int position = 0;
  int size = 1;
  int previous = 0, next = 0;  // ranks

  // Returns: the position `distance` further around the ring.
  int around(int64_t distance) const noexcept;
};

// Returns the ring of all ranks in their order.
RingPosition rank_ring(int rank, int size) noexcept;

// Returns ring `index` over hosts x local_size ranks (rank = host * local_size + local). The ring
// visits all ranks of a host, then the next host. Ring i, of local_size different ones, crosses
// hosts at the local ranks i and i - 1: it enters even hosts at i and leaves them at i - 1, and odd
// hosts in reverse.
//
// So a crossing stays on one local rank (one rail), except the last one when the number of hosts is
// odd. Over all rings each local rank of each host has one incoming and one outgoing ring. Indices
// from local_size on repeat the first ones.
RingPosition host_ring(int index, int rank, int hosts, int local_size) noexcept;
// Returns: the rank at a position of host_ring().
int host_ring_rank(int index, int64_t position, int hosts, int local_size) noexcept;

// Appends step t < size - 1 of the ring reduce_scatter. Block b, by position, starts at the rank
// after position b. Each rank on its way adds to it, last its owner: x(b+1) + x(b+2) + ... + x(b).
// `into(t, b)` is where a rank stores the sum of block b that it computes in step t.
template <class Into>
void ring_reduce_scatter(const RingPosition& ring, const Blocks& blocks, int64_t t,
                         const Into& into, Step& out) {
  const int sent = ring.around(-1 - t), received = ring.around(-2 - t);
  out.send(ring.next, t == 0 ? blocks.in(Buffer::kInput, sent) : into(t - 1, sent));
  out.receive_reduce(ring.previous, blocks.in(Buffer::kInput, received), into(t, received),
                     LeftOperand::kIncoming);
}

// Appends step t < size - 1 of the ring all_gather into the output. Each rank sends `mine`, its
// block, and then forwards what it has received.
void ring_all_gather(const RingPosition& ring, const Blocks& blocks, Range mine, int64_t t,
                     Step& out);

}  // namespace torch::comms::schedule
