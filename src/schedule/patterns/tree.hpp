#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "schedule/action.hpp"
#include "schedule/patterns/blocks.hpp"
#include "schedule/patterns/fold.hpp"

namespace torch::comms::schedule {

// The binomial tree over nodes [0, size), rooted at 0, for any size: node v's parent is v without
// its lowest set bit, its subtree is the nodes [v, end(v)). Ranks are nodes rotated so that the
// root is 0.
class BinomialTree {
 public:
  BinomialTree(int rank, int size, int root) noexcept
      : node_((rank - root + size) % size), size_(size), root_(root) {}

  int node() const noexcept { return node_; }
  int rank(int node) const noexcept { return (node + root_) % size_; }
  // Of the root: how many rounds a message needs from it to the last leaf.
  int height() const noexcept { return ceil_log2(size_); }
  // Child j < level() is node() + 2^j, if there is such a node; its level is j.
  int level() const noexcept {
    return node_ == 0 ? height() : std::countr_zero(static_cast<unsigned>(node_));
  }
  int children() const noexcept { return ceil_log2(end(node_, level()) - node_); }
  int child(int j) const noexcept { return node_ + (1 << j); }
  int parent() const noexcept { return node_ & (node_ - 1); }
  // The end of the subtree of a node of this level.
  int end(int node, int level) const noexcept { return std::min<int>(size_, node + (1 << level)); }
  int end() const noexcept { return end(node_, level()); }

 private:
  int node_, size_, root_;
};

// Step t of moving a vector from the root to all, `chunks` after each other: chunk c leaves for the
// root's biggest subtree in step c and for its smallest in step c + height - 1. All chunks are
// through after chunks.count() + height() - 1 steps. Any t: nothing happens before 0 and after the
// last step.
void tree_broadcast(const BinomialTree& tree, const Chunks& chunks, int64_t t, Step& out);

// The same in the other direction, adding: leaves begin. Inner nodes keep their sum in `sum`, at
// the root that is the result. A node adds its children from the smallest subtree to the biggest,
// so sums are of consecutive nodes, in their order.
void tree_reduce(const BinomialTree& tree, const Chunks& chunks, Buffer sum, int64_t t, Step& out);

}  // namespace torch::comms::schedule
