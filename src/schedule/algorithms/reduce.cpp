#include "schedule/catalogue.hpp"
#include "schedule/patterns/chain.hpp"
#include "schedule/patterns/direct.hpp"
#include "schedule/patterns/tree.hpp"

// reduce of whole vectors to the root. Only the root has an output: other ranks keep sums in
// scratch.
namespace torch::comms::schedule {
namespace {

Chunks chunks_of(const Problem& p) { return {p.count(), p.options.chunk}; }
BinomialTree tree_of(const Problem& p) { return {p.rank, p.size, p.root}; }
Buffer sum_of(const Problem& p) { return p.rank == p.root ? Buffer::kOutput : Buffer::kScratch; }

// The chunks bound the root's scratch.
void direct_step(const Problem& p, int64_t t, Step& out) {
  const Range mine = chunks_of(p).in(Buffer::kInput, t);
  if (p.rank != p.root) return out.send(p.root, mine);
  for (int d = 1; d < p.size; ++d) {
    const int peer = p.ring_neighbor(d);
    out.receive(peer, contribution_range(p.rank, peer, mine.count));
  }
  reduce_in_rank_order(p.rank, p.size, mine, chunks_of(p).in(Buffer::kOutput, t), out);
}

int64_t direct_scratch_of_root(const Problem& p) {
  return (p.size - 1) * chunks_of(p).in(Buffer::kInput, 0).count;
}

Cost direct_cost(const Problem& p) {
  const int64_t all = (p.size - 1) * p.count();
  return {.messages = chunks_of(p).count(),
          .sent = p.count(),
          .received = all,
          .reduced = all,
          .scratch = direct_scratch_of_root(p)};
}

int64_t tree_scratch(const Problem& p) {
  const BinomialTree tree = tree_of(p);
  return tree.node() != 0 && tree.children() > 0 ? p.count() : 0;
}

Cost tree_cost(const Problem& p) {
  const int64_t all = ceil_log2(p.size) * p.count();
  return {.messages = chunks_of(p).count(),
          .sent = p.count(),
          .received = all,
          .reduced = all,
          .scratch = p.size > 3 ? p.count() : 0};
}

// The chain visits all ranks in order, with one more hop if the last one is not the root.
int64_t chain_steps(const Problem& p) {
  return chunks_of(p).count() + p.size - 2 + (p.root != p.size - 1 ? 1 : 0);
}

void chain_step(const Problem& p, int64_t t, Step& out) {
  const Chunks chunks = chunks_of(p);
  const int last = p.size - 1;
  chain_reduce(p.rank, p.size, chunks, sum_of(p), t, out);
  if (p.root == last) return;
  if (p.rank == last) out.send(p.root, chunks.in(Buffer::kScratch, t - last));
  if (p.rank == p.root) out.receive(last, chunks.in(Buffer::kOutput, t - last));
}

int64_t chain_scratch(const Problem& p) { return p.rank != p.root && p.rank != 0 ? p.count() : 0; }

Cost chain_cost(const Problem& p) {
  const bool root_inside = p.root != 0 && p.root != p.size - 1;
  return {.messages = chunks_of(p).count(),
          .sent = p.count(),
          .received = (root_inside ? 2 : 1) * p.count(),
          .reduced = p.count(),
          .scratch = p.size > 2 || p.root == 0 ? p.count() : 0};
}

}  // namespace

constinit const Algorithm kReduceDirect{
    .operation = Operation::kReduce,
    .name = "direct",
    .summary = "every rank sends to the root, which adds: one hop; small vectors on one host",
    .source = "flat tree: Chan et al. 2007",
    .reduction_order = ReductionOrder::kRankOrder,
    .order_text = "rank order",
    .functions = {
        .steps = [](const Problem& p) { return chunks_of(p).count(); },
        .step = direct_step,
        .cost = direct_cost,
        .scratch =
            [](const Problem& p) { return p.rank == p.root ? direct_scratch_of_root(p) : 0; }}};

constinit const Algorithm kReduceTree{
    .operation = Operation::kReduce,
    .name = "tree",
    .summary =
        "binomial tree, in chunks: log steps, every rank sends once; small vectors, many ranks",
    .source = "minimum spanning tree reduce: Chan et al. 2007",
    .reduction_order = ReductionOrder::kFixed,
    .order_text =
        "a rank, then its subtrees from the smallest, which are the next ranks around from the "
        "root",
    .functions = {
        .steps = [](const Problem& p) { return chunks_of(p).count() + ceil_log2(p.size) - 1; },
        .step = [](const Problem& p, int64_t t,
                   Step& out) { tree_reduce(tree_of(p), chunks_of(p), sum_of(p), t, out); },
        .cost = tree_cost,
        .scratch = tree_scratch}};

constinit const Algorithm kReduceChain{
    .operation = Operation::kReduce,
    .name = "chain",
    .summary = "along the line of ranks in chunks, then to the root: large vectors in rank order",
    .source = "pipelined chain: Chan et al. 2007",
    .reduction_order = ReductionOrder::kRankOrder,
    .order_text = "rank order",
    .functions = {
        .steps = chain_steps, .step = chain_step, .cost = chain_cost, .scratch = chain_scratch}};

}  // namespace torch::comms::schedule
