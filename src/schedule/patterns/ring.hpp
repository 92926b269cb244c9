#pragma once

#include <cstdint>

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"

namespace torch::comms::schedule {

// A rank's place in a ring: who is before and after it, and how far it is from where the ring
// begins.
struct RingPosition {
  int position = 0;
  int size = 1;
  int previous = 0, next = 0;  // ranks

  // Position + distance around the ring.
  int around(int64_t distance) const noexcept;
};

// All ranks in their order.
RingPosition rank_ring(int rank, int size) noexcept;

// Ring `index` over hosts x local_size ranks (rank = host * local_size + local): visits a host's
// ranks one after the other, then the next host. Ring i, of local_size different ones, uses the
// local ranks i and i - 1 to cross: even hosts are entered at i and left at i - 1, odd ones the
// other way round. So a crossing stays on one local rank (one rail) - except the last one when the
// number of hosts is odd - and over all rings each local rank of each host has one ring coming in
// and one going out. Indices from local_size on repeat the first ones.
RingPosition host_ring(int index, int rank, int hosts, int local_size) noexcept;
// The rank at a position of that ring.
int host_ring_rank(int index, int64_t position, int hosts, int local_size) noexcept;

// Step t < size - 1 of the ring reduce_scatter: block b, by position, starts at the rank after b's
// and is added to by each rank on its way, last by its owner: x(b+1) + x(b+2) + ... + x(b).
// `into(t, b)` says where a rank puts the sum of block b that it makes in step t.
template <class Into>
void ring_reduce_scatter(const RingPosition& ring, const Blocks& blocks, int64_t t,
                         const Into& into, Step& out) {
  const int sent = ring.around(-1 - t), received = ring.around(-2 - t);
  out.send(ring.next, t == 0 ? blocks.in(Buffer::kInput, sent) : into(t - 1, sent));
  out.receive_reduce(ring.previous, blocks.in(Buffer::kInput, received), into(t, received),
                     LeftOperand::kIncoming);
}

// Step t < size - 1 of the ring all_gather into the output: each rank sends `mine`, its block, then
// passes on what it got.
void ring_all_gather(const RingPosition& ring, const Blocks& blocks, Range mine, int64_t t,
                     Step& out);

}  // namespace torch::comms::schedule
