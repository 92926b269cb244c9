#include "schedule/catalogue.hpp"
#include "schedule/patterns/chain.hpp"
#include "schedule/patterns/ring.hpp"
#include "schedule/patterns/tree.hpp"

// broadcast of the root's output. Nodes are ranks rotated so that the root is node 0.
namespace torch::comms::schedule {
namespace {

Chunks chunks_of(const Problem& p) { return {p.count(), p.options.chunk}; }
BinomialTree tree_of(const Problem& p) { return {p.rank, p.size, p.root}; }

void direct_step(const Problem& p, int64_t, Step& out) {
  const Range all{Buffer::kOutput, 0, p.count()};
  if (p.rank != p.root) return out.receive(p.root, all);
  for (int d = 1; d < p.size; ++d) out.send(p.ring_neighbor(d), all);
}

Cost direct_cost(const Problem& p) {
  const int64_t peers = p.size - 1;
  return {.messages = peers, .sent = peers * p.count(), .received = p.count()};
}

Cost tree_cost(const Problem& p) {
  const int64_t height = ceil_log2(p.size);
  return {
      .messages = height * chunks_of(p).count(), .sent = height * p.count(), .received = p.count()};
}

void chain_step(const Problem& p, int64_t t, Step& out) {
  chain_broadcast(tree_of(p).node(), p.size, p.ring_neighbor(-1), p.ring_neighbor(1), chunks_of(p),
                  t, out);
}

// Van de Geijn: the root's blocks, one per node, are scattered down the tree and gathered around
// the ring. The ring does not send a rank the blocks that the tree has delivered to it.
void scatter_step(const Problem& p, const BinomialTree& tree, int64_t t, Step& out) {
  const auto subtree = [&](int node, int level) {
    return p.blocks.in(Buffer::kOutput, node, tree.end(node, level));
  };
  const int64_t j = tree.height() - 1 - t;  // child j receives the blocks of its subtree
  if (tree.node() != 0 && tree.level() == j)
    out.receive(tree.rank(tree.parent()), subtree(tree.node(), tree.level()));
  if (j < tree.children())
    out.send(tree.rank(tree.child(static_cast<int>(j))),
             subtree(tree.child(static_cast<int>(j)), static_cast<int>(j)));
}

void gather_step(const Problem& p, const BinomialTree& tree, int64_t t, Step& out) {
  const BinomialTree next(p.ring_neighbor(1), p.size, p.root);
  const auto pass_on = [&](const BinomialTree& receiver, int block, auto transfer) {
    if (block < receiver.node() || block >= receiver.end())
      transfer(p.blocks.in(Buffer::kOutput, block));
  };
  const RingPosition ring = rank_ring(tree.node(), p.size);
  pass_on(next, ring.around(-t), [&](Range r) { out.send(p.ring_neighbor(1), r); });
  pass_on(tree, ring.around(-1 - t), [&](Range r) { out.receive(p.ring_neighbor(-1), r); });
}

void scatter_gather_step(const Problem& p, int64_t t, Step& out) {
  const BinomialTree tree = tree_of(p);
  if (t < tree.height()) return scatter_step(p, tree, t, out);
  gather_step(p, tree, t - tree.height(), out);
}

Cost scatter_gather_cost(const Problem& p) {
  // The root sends everything but its own block down the tree, and everything but node 1's block
  // around the ring.
  return {.messages = ceil_log2(p.size) + p.size - 1,
          .sent = 2 * p.count() - p.blocks.count(0) - p.blocks.count(1),
          .received = p.count()};
}

}  // namespace

constinit const Algorithm kBroadcastDirect{
    .operation = Operation::kBroadcast,
    .name = "direct",
    .summary = "the root sends to every rank: one hop; best on one host and for small vectors",
    .source = "flat tree: Chan et al. 2007",
    .functions = {.steps = [](const Problem&) { return int64_t{1}; },
                  .step = direct_step,
                  .cost = direct_cost}};

constinit const Algorithm kBroadcastTree{
    .operation = Operation::kBroadcast,
    .name = "tree",
    .summary =
        "binomial tree, in chunks: log steps, each rank receives once; small vectors, many ranks",
    .source = "minimum spanning tree broadcast: Chan et al. 2007",
    .functions = {
        .steps = [](const Problem& p) { return chunks_of(p).count() + ceil_log2(p.size) - 1; },
        .step = [](const Problem& p, int64_t t,
                   Step& out) { tree_broadcast(tree_of(p), chunks_of(p), t, out); },
        .cost = tree_cost}};

constinit const Algorithm kBroadcastChain{
    .operation = Operation::kBroadcast,
    .name = "chain",
    .summary =
        "along the ranks in chunks: every rank sends the vector once; large vectors, few ranks",
    .source = "pipelined chain: Chan et al. 2007",
    .functions = {
        .steps = [](const Problem& p) { return chunks_of(p).count() + int64_t{p.size} - 2; },
        .step = chain_step,
        .cost =
            [](const Problem& p) {
              return Cost{
                  .messages = chunks_of(p).count(), .sent = p.count(), .received = p.count()};
            }}};

constinit const Algorithm kBroadcastScatterGather{
    .operation = Operation::kBroadcast,
    .name = "scatter_all_gather",
    .summary =
        "blocks down a binomial tree, then around the ring: at most two vectors sent per rank, "
        "whatever the number of ranks; large vectors",
    .source = "Barnett, Gupta, Payne, Shuler, van de Geijn & Watts, SHPCC 1994",
    .functions = {.steps = [](const Problem& p) { return int64_t{ceil_log2(p.size)} + p.size - 1; },
                  .step = scatter_gather_step,
                  .cost = scatter_gather_cost}};

}  // namespace torch::comms::schedule
