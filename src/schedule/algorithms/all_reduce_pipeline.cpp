#include "schedule/catalogue.hpp"
#include "schedule/patterns/chain.hpp"
#include "schedule/patterns/tree.hpp"

// all_reduce as a reduce to one rank and a broadcast from it, in chunks, so that chunks move down
// while others move up.
namespace torch::comms::schedule {
namespace {

Chunks chunks_of(const Problem& p) { return {p.count(), p.options.chunk}; }

void tree_step(const Problem& p, int64_t t, Step& out) {
  const BinomialTree tree(p.rank, p.size, 0);
  tree_reduce(tree, chunks_of(p), Buffer::kOutput, t, out);
  tree_broadcast(tree, chunks_of(p), t - tree.height(), out);
}

Cost tree_cost(const Problem& p) {
  const int64_t height = ceil_log2(p.size), moved = height * p.count();
  return {.messages = height * chunks_of(p).count(),
          .sent = moved,
          .received = moved,
          .reduced = moved};
}

void chain_step(const Problem& p, int64_t t, Step& out) {
  chain_reduce(p.rank, p.size, chunks_of(p), Buffer::kOutput, t, out);
  chain_broadcast(p.size - 1 - p.rank, p.size, p.rank + 1, p.rank - 1, chunks_of(p),
                  t - (p.size - 1), out);
}

Cost chain_cost(const Problem& p) {
  const int64_t ways = p.size > 2 ? 2 : 1;  // inner ranks of the line send up and down
  return {.messages = ways * chunks_of(p).count(),
          .sent = ways * p.count(),
          .received = ways * p.count(),
          .reduced = p.count()};
}

}  // namespace

constinit const Algorithm kAllReduceTree{
    .operation = Operation::kAllReduce,
    .name = "tree",
    .summary = "binomial reduce to rank 0 and broadcast from it, in chunks; few messages in all",
    .source = "binomial trees: Chan et al. 2007",
    .reduction_order = ReductionOrder::kFixed,
    .order_text =
        "a rank, then its subtrees from the smallest, which are the next ranks in their order",
    .functions = {.steps =
                      [](const Problem& p) {
                        return chunks_of(p).count() + int64_t{2} * ceil_log2(p.size) - 1;
                      },
                  .step = tree_step,
                  .cost = tree_cost}};

constinit const Algorithm kAllReduceChain{
    .operation = Operation::kAllReduce,
    .name = "chain",
    .summary =
        "up the line of ranks and down again, in chunks: large vectors in rank order, no scratch",
    .source = "pipelined chain: Chan et al. 2007",
    .reduction_order = ReductionOrder::kRankOrder,
    .order_text = "rank order",
    .functions = {
        .steps = [](const Problem& p) { return chunks_of(p).count() + 2 * int64_t{p.size} - 3; },
        .step = chain_step,
        .cost = chain_cost}};

}  // namespace torch::comms::schedule
