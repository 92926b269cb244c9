#include "schedule/patterns/ring.hpp"

namespace torch::comms::schedule {
namespace {

int modulo(int64_t a, int64_t n) {
  const int64_t r = a % n;
  return static_cast<int>(r < 0 ? r + n : r);
}

// Convert between the j-th visit of ring `index` on a host and the local rank; they are inverses of
// each other.
int local_at(int index, int host, int j, int local_size) {
  return host % 2 == 0 ? modulo(index + j, local_size) : modulo(index - 1 - j, local_size);
}
int visit_of(int index, int host, int local, int local_size) {
  return host % 2 == 0 ? modulo(local - index, local_size) : modulo(index - 1 - local, local_size);
}

}  // namespace

int RingPosition::around(int64_t distance) const noexcept {
  return modulo(position + distance, size);
}

RingPosition rank_ring(int rank, int size) noexcept {
  return {rank, size, modulo(rank - 1, size), modulo(rank + 1, size)};
}

int host_ring_rank(int index, int64_t position, int hosts, int local_size) noexcept {
  const int place = modulo(position, int64_t{hosts} * local_size);
  const int host = place / local_size;
  return host * local_size + local_at(index, host, place % local_size, local_size);
}

RingPosition host_ring(int index, int rank, int hosts, int local_size) noexcept {
  const int host = rank / local_size;
  const int position = host * local_size + visit_of(index, host, rank % local_size, local_size);
  return {position, hosts * local_size, host_ring_rank(index, position - 1, hosts, local_size),
          host_ring_rank(index, position + 1, hosts, local_size)};
}

void ring_all_gather(const RingPosition& ring, const Blocks& blocks, Range mine, int64_t t,
                     Step& out) {
  const int sent = ring.around(-t), received = ring.around(-1 - t);
  out.send(ring.next, t == 0 ? mine : blocks.in(Buffer::kOutput, sent));
  out.receive(ring.previous, blocks.in(Buffer::kOutput, received));
}

}  // namespace torch::comms::schedule
