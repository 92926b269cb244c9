#include "schedule/catalogue.hpp"
#include "schedule/patterns/direct.hpp"
#include "schedule/patterns/ring.hpp"

// reduce_scatter without a tree. Blocks may differ in size.
namespace torch::comms::schedule {
namespace {

Range output(const Problem& p) { return {Buffer::kOutput, 0, p.output_count()}; }

// The chunks bound the scratch, which otherwise grows with the vector.
Chunks chunks_of(const Problem& p) { return {p.blocks.largest(), p.options.chunk}; }

Cost direct_cost(const Problem& p) {
  const int64_t peers = p.size - 1, gathered = peers * p.blocks.largest();
  return {.messages = peers * chunks_of(p).count(),
          .sent = p.count() - p.blocks.smallest(),
          .received = gathered,
          .reduced = gathered,
          .scratch = peers * chunks_of(p).in(Buffer::kInput, 0).count};
}

int64_t direct_scratch(const Problem& p) {
  return (p.size - 1) * chunks_of(p).of(output(p), 0).count;
}

// Partial sums alternate between two slots: one is sent while the other is computed.
int slots(const Problem& p) { return std::min(p.size - 2, 2); }

void ring_step(const Problem& p, int64_t t, Step& out) {
  const auto into = [&](int64_t step, int block) -> Range {
    if (step == p.size - 2) return output(p);
    return {Buffer::kScratch, step % 2 * p.blocks.largest(), p.blocks.count(block)};
  };
  ring_reduce_scatter(rank_ring(p.rank, p.size), p.blocks, t, into, out);
}

Cost ring_cost(const Problem& p) {
  const int64_t moved = p.count() - p.blocks.smallest();
  return {.messages = p.size - 1,
          .sent = moved,
          .received = moved,
          .reduced = moved,
          .scratch = slots(p) * p.blocks.largest()};
}

}  // namespace

constinit const Algorithm kReduceScatterDirect{
    .operation = Operation::kReduceScatter,
    .name = "direct",
    .summary = "every rank sends every other rank its block: one hop; best on one host",
    .source = "direct exchange (Chan et al. 2007)",
    .reduction_order = ReductionOrder::kRankOrder,
    .order_text = "rank order",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return chunks_of(p).count(); },
                  .step =
                      [](const Problem& p, int64_t t, Step& out) {
                        const Chunks chunks = chunks_of(p);
                        direct_reduce_scatter(p.rank, p.blocks, chunks, t, chunks.of(output(p), t),
                                              out);
                      },
                  .cost = direct_cost,
                  .scratch = direct_scratch}};

constinit const Algorithm kReduceScatterRing{
    .operation = Operation::kReduceScatter,
    .name = "ring",
    .summary =
        "sums go around the ring, neighbors only; large blocks between hosts, little scratch",
    .source = "bucket algorithm: Chan et al. 2007; Patarasuk & Yuan 2009",
    .reduction_order = ReductionOrder::kFixed,
    .order_text = "block b: from rank b + 1 around the ring to rank b",
    .is_rotation_invariant = true,
    .functions = {.steps = [](const Problem& p) { return int64_t{p.size - 1}; },
                  .step = ring_step,
                  .cost = ring_cost,
                  .scratch = [](const Problem& p) { return slots(p) * p.blocks.largest(); }}};

}  // namespace torch::comms::schedule
