#include "schedule/catalogue.hpp"
#include "schedule/patterns/direct.hpp"
#include "schedule/patterns/ring.hpp"

// reduce as a reduce_scatter whose blocks then go to the root, so that all ranks add.
namespace torch::comms::schedule {
namespace {

bool at_root(const Problem& p) { return p.rank == p.root; }

// Sends chunk t of every rank's block to the root. `sum` is the whole block or only that chunk.
void collect(const Problem& p, const Chunks& chunks, int64_t t, Range sum, Step& out) {
  if (!at_root(p)) return out.send(p.root, sum);
  for (int d = 1; d < p.size; ++d) {
    const int peer = p.ring_neighbor(d);
    out.receive(peer, chunks.of(p.blocks.in(Buffer::kOutput, peer), t));
  }
}

Chunks chunks_of(const Problem& p) { return {p.blocks.largest(), p.options.chunk}; }
// Returns chunk t of this rank's block.
Range chunk_of(const Problem& p, Buffer buffer, int64_t t) {
  return chunks_of(p).of(p.blocks.in(buffer, p.rank), t);
}

// While a chunk is reduced, the chunk before is sent to the root. Until then it is in scratch,
// behind the contributions.
void two_shot_step(const Problem& p, int64_t t, Step& out) {
  const int64_t behind = (p.size - 1) * chunk_of(p, Buffer::kInput, 0).count;
  const auto sum = [&](int64_t chunk) -> Range {
    const Range final = chunk_of(p, Buffer::kOutput, chunk);
    return at_root(p) ? final : Range{Buffer::kScratch, behind, final.count};
  };
  direct_reduce_scatter(p.rank, p.blocks, chunks_of(p), t, sum(t), out);
  collect(p, chunks_of(p), t - 1, sum(t - 1), out);
}

int64_t two_shot_scratch(const Problem& p) {
  return (at_root(p) ? p.size - 1 : p.size) * chunk_of(p, Buffer::kInput, 0).count;
}

Cost two_shot_cost(const Problem& p) {
  const int64_t peers = p.size - 1;
  const int first = p.root == 0 ? 1 : 0;  // its block is as large as that of any rank but the root
  // The root also receives the blocks of all ranks.
  const int64_t root = (peers - 1) * p.blocks.count(p.root) + p.count();
  const auto scratch_of = [&p](int rank) { return two_shot_scratch(p.for_rank(rank)); };
  return {.messages = peers * chunks_of(p).count() + 1,
          .sent = p.count(),
          .received = std::max(root, peers * p.blocks.count(first)),
          .reduced = peers * p.blocks.largest(),
          .scratch = std::max(scratch_of(first), scratch_of(p.root))};
}

// Number of slots as for reduce_scatter, but only the root can put its sum into its output.
int slots(const Problem& p) { return std::min(at_root(p) ? p.size - 2 : p.size - 1, 2); }

void ring_step(const Problem& p, int64_t t, Step& out) {
  const auto into = [&](int64_t step, int block) -> Range {
    if (step == p.size - 2 && at_root(p)) return p.blocks.in(Buffer::kOutput, block);
    return {Buffer::kScratch, step % 2 * p.blocks.largest(), p.blocks.count(block)};
  };
  if (t < p.size - 1) return ring_reduce_scatter(rank_ring(p.rank, p.size), p.blocks, t, into, out);
  collect(p, {p.blocks.largest(), 0}, 0, into(t - 1, p.rank), out);
}

Cost ring_cost(const Problem& p) {
  const int before = p.root == 0 ? p.size - 1 : p.root - 1;
  return {.messages = p.size,
          .sent = p.count(),
          .received = 2 * p.count() - p.blocks.count(before) - p.blocks.count(p.root),
          .reduced = p.count() - p.blocks.smallest(),
          .scratch = std::min(p.size - 1, 2) * p.blocks.largest()};
}

}  // namespace

constinit const Algorithm kReduceTwoShot{
    .operation = Operation::kReduce,
    .name = "two_shot",
    .summary =
        "direct reduce_scatter, blocks to the root: all ranks add, two hops; large vectors on one "
        "host",
    .source = "direct exchange (Chan et al. 2007), composed",
    .reduction_order = ReductionOrder::kRankOrder,
    .order_text = "rank order",
    .functions = {.steps = [](const Problem& p) { return chunks_of(p).count() + 1; },
                  .step = two_shot_step,
                  .cost = two_shot_cost,
                  .scratch = two_shot_scratch}};

constinit const Algorithm kReduceRing{
    .operation = Operation::kReduce,
    .name = "ring",
    .summary = "ring reduce_scatter, blocks to the root: least data, little scratch; large vectors",
    .source = "reduce_scatter and gather: Chan et al. 2007",
    .reduction_order = ReductionOrder::kFixed,
    .order_text = "block b, of evenly cut ones: from rank b + 1 around the ring to rank b",
    .functions = {.steps = [](const Problem& p) { return int64_t{p.size}; },
                  .step = ring_step,
                  .cost = ring_cost,
                  .scratch = [](const Problem& p) { return slots(p) * p.blocks.largest(); }}};

}  // namespace torch::comms::schedule
