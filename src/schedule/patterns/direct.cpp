#include "schedule/patterns/direct.hpp"

namespace torch::comms::schedule {

Range contribution_range(int rank, int peer, int64_t count) noexcept {
  return {Buffer::kScratch, (peer < rank ? peer : peer - 1) * count, count};
}

void reduce_in_rank_order(int rank, int size, Range mine, Range into, Step& out) {
  const auto of = [&](int i) { return i == rank ? mine : contribution_range(rank, i, mine.count); };
  // The sum reuses the scratch of the lower of the two peers that are added first.
  const Range sum{Buffer::kScratch, 0, mine.count};
  for (int i = 1; i < size; ++i)
    out.reduce(i == 1 ? of(0) : sum, of(i), i == size - 1 ? into : sum);
}

void direct_reduce_scatter(int rank, const Blocks& blocks, const Chunks& chunks, int64_t t,
                           Range into, Step& out) {
  const auto chunk = [&](int peer) { return chunks.of(blocks.in(Buffer::kInput, peer), t); };
  const Range mine = chunk(rank);
  exchange_with_all(
      rank, blocks.parts(), chunk,
      [&](int peer) { return contribution_range(rank, peer, mine.count); }, out);
  reduce_in_rank_order(rank, blocks.parts(), mine, into, out);
}

void direct_all_gather(int rank, const Blocks& blocks, const Chunks& chunks, int64_t t, Range mine,
                       Step& out) {
  exchange_with_all(
      rank, blocks.parts(), [&](int) { return mine; },
      [&](int peer) { return chunks.of(blocks.in(Buffer::kOutput, peer), t); }, out);
}

}  // namespace torch::comms::schedule
