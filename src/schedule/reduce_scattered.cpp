#include "schedule/catalogue.hpp"
#include "schedule/direct.hpp"
#include "schedule/ring.hpp"

// Reduce as a reduce_scatter whose blocks then go to the root, so that all ranks add.
namespace torch::comms::schedule {
namespace {

bool at_root(const Problem& p) { return p.rank == p.root; }

// The last step: every rank's sum is in its block of the root's output, or in `sum`.
void collect(const Problem& p, Range sum, Step& out) {
  if (!at_root(p)) return out.send(p.root, sum);
  for (int d = 1; d < p.size; ++d) {
    const int peer = p.neighbour(d);
    out.receive(peer, p.blocks.in(Buffer::kOutput, peer));
  }
}

void two_shot_step(const Problem& p, int64_t t, Step& out) {
  const Range sum = at_root(p) ? p.blocks.in(Buffer::kOutput, p.rank)
                               : Range{Buffer::kScratch, 0, p.blocks.count(p.rank)};
  if (t == 0) return direct_reduce_scatter(p.rank, p.blocks, sum, out);
  collect(p, sum, out);
}

Cost two_shot_cost(const Problem& p) {
  const int64_t others = p.size - 1, largest = p.blocks.largest();
  // Either the root, which also collects, or the first of the others, whose block is as big as any.
  const int64_t root = (others - 1) * p.blocks.count(p.root) + p.count();
  const int64_t other = others * p.blocks.count(p.root == 0 ? 1 : 0);
  return {.messages = others + 1,
          .sent = p.count(),
          .received = std::max(root, other),
          .reduced = others * largest,
          .scratch = others * largest};
}

// As reduce_scatter, but only the root can put its sum into its output.
int slots(const Problem& p) { return std::min(at_root(p) ? p.size - 2 : p.size - 1, 2); }

void ring_step(const Problem& p, int64_t t, Step& out) {
  const auto into = [&](int64_t step, int block) -> Range {
    if (step == p.size - 2 && at_root(p)) return p.blocks.in(Buffer::kOutput, block);
    return {Buffer::kScratch, step % 2 * p.blocks.largest(), p.blocks.count(block)};
  };
  if (t < p.size - 1) return ring_reduce_scatter(rank_ring(p.rank, p.size), p.blocks, t, into, out);
  collect(p, into(t - 1, p.rank), out);
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
    .addition = Addition::kRankOrder,
    .order = "rank order",
    .rules = {.steps = [](const Problem&) { return int64_t{2}; },
              .step = two_shot_step,
              .cost = two_shot_cost,
              .scratch = [](const Problem& p) { return (p.size - 1) * p.blocks.count(p.rank); }}};

constinit const Algorithm kReduceRing{
    .operation = Operation::kReduce,
    .name = "ring",
    .summary = "ring reduce_scatter, blocks to the root: least data, little scratch; large vectors",
    .source = "reduce_scatter and gather: Chan et al. 2007",
    .addition = Addition::kFixed,
    .order = "block b, of evenly cut ones: from rank b + 1 around the ring to rank b",
    .rules = {.steps = [](const Problem& p) { return int64_t{p.size}; },
              .step = ring_step,
              .cost = ring_cost,
              .scratch = [](const Problem& p) { return slots(p) * p.blocks.largest(); }}};

}  // namespace torch::comms::schedule
