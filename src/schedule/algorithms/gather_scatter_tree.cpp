#include "schedule/catalogue.hpp"
#include "schedule/patterns/tree.hpp"

// gather and scatter by a binomial tree. Blocks travel in the order of nodes, so that the blocks of
// a subtree are one range around the ring of ranks. Inner nodes keep their children's blocks in
// scratch. Blocks may differ in size.
namespace torch::comms::schedule {
namespace {

BinomialTree tree_of(const Problem& p) { return {p.rank, p.size, p.root}; }
int64_t steps(const Problem& p) { return ceil_log2(p.size); }

// Returns the elements that an inner node keeps for its children.
int64_t scratch(const Problem& p) {
  const BinomialTree tree = tree_of(p);
  return tree.node() == 0 ? 0
                          : p.blocks.count_around(p.ring_neighbor(1), tree.end() - tree.node() - 1);
}

// Returns the ranges of the blocks of nodes [begin, end) in this node's subtree, without its own.
// At the root they are in `whole`, in up to two pieces; elsewhere in scratch.
std::array<Range, 2> held(const Problem& p, const BinomialTree& tree, Buffer whole, int begin,
                          int end) {
  const auto pieces = p.blocks.around(whole, tree.rank(begin), end - begin);
  if (tree.node() == 0) return pieces;
  const int64_t before = p.blocks.count_around(p.ring_neighbor(1), begin - tree.node() - 1);
  return {Range{Buffer::kScratch, before, pieces[0].count + pieces[1].count}, Range{}};
}

// Appends the transfer of child j's subtree between this rank and the child.
template <class Transfer>
void with_child(const Problem& p, const BinomialTree& tree, Buffer whole, int64_t j,
                const Transfer& transfer) {
  if (j >= tree.children()) return;
  const int child = tree.child(static_cast<int>(j));
  for (const Range& range : held(p, tree, whole, child, tree.end(child, static_cast<int>(j))))
    transfer(tree.rank(child), range);
}

void gather_step(const Problem& p, int64_t t, Step& out) {
  const BinomialTree tree = tree_of(p);
  const Range input{Buffer::kInput, 0, p.blocks.count(p.rank)};
  with_child(p, tree, Buffer::kOutput, t, [&](int peer, Range r) { out.receive(peer, r); });
  if (tree.node() == 0 && t == 0) out.copy(input, p.blocks.in(Buffer::kOutput, p.rank));
  if (tree.node() == 0 || t != tree.level()) return;
  const int parent = tree.rank(tree.parent());
  out.send(parent, input);
  out.send(parent, {Buffer::kScratch, 0, scratch(p)});
}

void scatter_step(const Problem& p, int64_t t, Step& out) {
  const BinomialTree tree = tree_of(p);
  const int64_t j = tree.height() - 1 - t;
  const Range output{Buffer::kOutput, 0, p.blocks.count(p.rank)};
  with_child(p, tree, Buffer::kInput, j, [&](int peer, Range r) { out.send(peer, r); });
  if (tree.node() == 0 && j == 0) out.copy(p.blocks.in(Buffer::kInput, p.rank), output);
  if (tree.node() == 0 || j != tree.level()) return;
  const int parent = tree.rank(tree.parent());
  out.receive(parent, output);
  out.receive(parent, {Buffer::kScratch, 0, scratch(p)});
}

// The elements sent between the root and all ranks, and at most between any other rank and its
// parent.
struct TreeTraffic {
  int64_t root = 0, other = 0, scratch = 0;
};
TreeTraffic load_of(const Problem& p) {
  TreeTraffic load{.root = p.count() - p.blocks.count(p.root)};
  // With equal blocks the first node of each level has the largest subtree of that level.
  for (int node = 1; node < p.size; node = p.blocks.equal() ? node * 2 : node + 1) {
    const Problem other = p.for_rank((node + p.root) % p.size);
    load.scratch = std::max(load.scratch, scratch(other));
    load.other = std::max(load.other, scratch(other) + p.blocks.count(other.rank));
  }
  return load;
}

Cost gather_cost(const Problem& p) {
  const TreeTraffic load = load_of(p);
  return {.messages = 1, .sent = load.other, .received = load.root, .scratch = load.scratch};
}

Cost scatter_cost(const Problem& p) {
  const TreeTraffic load = load_of(p);
  return {.messages = steps(p), .sent = load.root, .received = load.other, .scratch = load.scratch};
}

}  // namespace

constinit const Algorithm kGatherTree{
    .operation = Operation::kGather,
    .name = "tree",
    .summary = "binomial tree: the root receives few messages; small blocks, many ranks",
    .source = "minimum spanning tree gather: Chan et al. 2007",
    .functions = {.steps = steps, .step = gather_step, .cost = gather_cost, .scratch = scratch}};

constinit const Algorithm kScatterTree{
    .operation = Operation::kScatter,
    .name = "tree",
    .summary = "binomial tree: the root sends few messages; small blocks, many ranks",
    .source = "minimum spanning tree scatter: Chan et al. 2007",
    .functions = {.steps = steps, .step = scatter_step, .cost = scatter_cost, .scratch = scratch}};

}  // namespace torch::comms::schedule
