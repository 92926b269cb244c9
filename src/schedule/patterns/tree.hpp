#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"
#include "schedule/patterns/fold.hpp"

namespace torch::comms::schedule {

// The binomial tree over nodes [0, size), rooted at 0, for any size. The parent of node v is v
// without its lowest set bit, and its subtree is the nodes [v, end(v)). Nodes are ranks rotated so
// that the root is node 0.
class BinomialTree {
 public:
  BinomialTree(int rank, int size, int root) noexcept
      : node_((rank - root + size) % size), size_(size), root_(root) {}

  int node() const noexcept { return node_; }
  int rank(int node) const noexcept { return (node + root_) % size_; }
  // Returns: the level of the root, which is the number of rounds from it to the last leaf.
  int height() const noexcept { return ceil_log2(size_); }
  // Returns: the level of this node. Child j < level() is node() + 2^j, if that node exists; its
  // level is j.
  int level() const noexcept {
    return node_ == 0 ? height() : std::countr_zero(static_cast<unsigned>(node_));
  }
  int children() const noexcept { return ceil_log2(end(node_, level()) - node_); }
  int child(int j) const noexcept { return node_ + (1 << j); }
  int parent() const noexcept { return node_ & (node_ - 1); }
  // Returns: the end of the subtree of a node of this level.
  int end(int node, int level) const noexcept { return std::min<int>(size_, node + (1 << level)); }
  int end() const noexcept { return end(node_, level()); }

 private:
  int node_, size_, root_;
};

// Appends step t of a broadcast of `chunks` from the root. Chunk c leaves for the root's largest
// subtree in step c, and for its smallest in step c + height - 1. All chunks have arrived after
// chunks.count() + height() - 1 steps. Any t is allowed; steps outside of the schedule are empty.
void tree_broadcast(const BinomialTree& tree, const Chunks& chunks, int64_t t, Step& out);

// Appends step t of a reduction to the root, in which leaves begin. Inner nodes keep their sum in
// `sum`; at the root it is the result. A node adds its children from the smallest subtree to the
// largest, so every sum covers consecutive nodes in their order.
void tree_reduce(const BinomialTree& tree, const Chunks& chunks, Buffer sum, int64_t t, Step& out);

}  // namespace torch::comms::schedule
