#include "schedule/patterns/tree.hpp"

namespace torch::comms::schedule {

void tree_broadcast(const BinomialTree& tree, const Chunks& chunks, int64_t t, Step& out) {
  const int64_t last = tree.height() - 1;
  if (tree.node() != 0)
    out.receive(tree.rank(tree.parent()), chunks.in(Buffer::kOutput, t - (last - tree.level())));
  for (int j = tree.children(); j-- > 0;)
    out.send(tree.rank(tree.child(j)), chunks.in(Buffer::kOutput, t - (last - j)));
}

void tree_reduce(const BinomialTree& tree, const Chunks& chunks, Buffer sum, int64_t t, Step& out) {
  for (int j = 0; j < tree.children(); ++j)
    out.receive_reduce(tree.rank(tree.child(j)), chunks.in(j == 0 ? Buffer::kInput : sum, t - j),
                       chunks.in(sum, t - j), LeftOperand::kOwn);
  if (tree.node() != 0)
    out.send(tree.rank(tree.parent()),
             chunks.in(tree.children() > 0 ? sum : Buffer::kInput, t - tree.level()));
}

}  // namespace torch::comms::schedule
