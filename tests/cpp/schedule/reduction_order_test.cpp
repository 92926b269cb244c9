#include <gtest/gtest.h>

#include "schedule/patterns/fold.hpp"
#include "schedule/proof.hpp"

// The documented orders of addition, each written down a second time, as the recursion it is.
namespace torch::comms::schedule {
namespace {

struct Element {
  int size;
  int64_t count, index;
  int block_of(int parts) const {
    const Blocks blocks = Blocks::even(count, parts);
    int block = 0;
    while (blocks.begin(block + 1) <= index) ++block;
    return block;
  }
};

// From `first` around to the rank before it.
Cell around(const Element& e, int first) {
  Cell sum = leaf(first % e.size, e.index);
  for (int i = 1; i < e.size; ++i) sum = add(sum, leaf((first + i) % e.size, e.index));
  return sum;
}

Cell in_rank_order(const Element& e) { return around(e, 0); }
Cell around_the_ring(const Element& e) { return around(e, e.block_of(e.size) + 1); }

Cell of_core(const Element& e, const Fold& fold, int index) {
  const int rank = fold.rank(index);
  const Cell own = leaf(rank, e.index);
  return fold.is_paired(rank) ? add(own, leaf(rank + 1, e.index)) : own;
}

Cell of_neighbours(const Element& e, const Fold& fold, int begin, int count) {
  if (count == 1) return of_core(e, fold, begin);
  return add(of_neighbours(e, fold, begin, count / 2),
             of_neighbours(e, fold, begin + count / 2, count / 2));
}
Cell neighbours_first(const Element& e) {
  const Fold fold(e.size);
  return of_neighbours(e, fold, 0, fold.core());
}

// What the core rank `index` has when it has added those that differ from it in bits from `bit` on.
Cell of_distant(const Element& e, const Fold& fold, int index, int bit) {
  if (bit == fold.core()) return of_core(e, fold, index);
  return add(of_distant(e, fold, index & ~bit, bit * 2), of_distant(e, fold, index | bit, bit * 2));
}
Cell distant_first(const Element& e) {
  const Fold fold(e.size);
  const int block = e.block_of(e.size);
  return of_distant(e, fold, fold.index(fold.is_in_core(block) ? block : block - 1), 1);
}

Cell of_subtree(const Element& e, int node, int size) {
  Cell sum = leaf(node, e.index);
  for (int distance = 1; distance < size && node + distance < e.size; distance *= 2)
    sum = add(sum, of_subtree(e, node + distance, distance));
  return sum;
}
Cell subtrees(const Element& e) { return of_subtree(e, 0, e.size); }

void expect_order(Operation operation, std::string_view name, Cell (*want)(const Element&)) {
  const Algorithm& algorithm = *find_algorithm(operation, name);
  for (int size = 2; size <= 20; ++size) {
    const int64_t count = 2 * size + 1;
    std::vector<Program> programs;
    const Blocks blocks = Blocks::even(count, size);
    for (int rank = 0; rank < size; ++rank)
      programs.push_back(program_of(
          algorithm, operation == Operation::kReduceScatter
                         ? block_problem(operation, rank, blocks)
                         : vector_problem(operation, rank, size, count, 0, {.chunk = 4})));
    const Report report = interpret(programs, {});
    ASSERT_EQ(report.failure, "");
    for (int rank = 0; rank < size; ++rank) {
      const int64_t first = operation == Operation::kReduceScatter ? blocks.begin(rank) : 0;
      const auto& output = report.outputs[static_cast<size_t>(rank)];
      for (size_t i = 0; i < output.size(); ++i)
        ASSERT_EQ(output[i], want({size, count, first + static_cast<int64_t>(i)}))
            << name << ", " << size << " ranks, element " << i << " of rank " << rank;
    }
  }
}

TEST(Addition, OfAllReduceIsAsDocumented) {
  expect_order(Operation::kAllReduce, "one_shot", in_rank_order);
  expect_order(Operation::kAllReduce, "two_shot", in_rank_order);
  expect_order(Operation::kAllReduce, "chain", in_rank_order);
  expect_order(Operation::kAllReduce, "ring", around_the_ring);
  expect_order(Operation::kAllReduce, "doubling", neighbours_first);
  expect_order(Operation::kAllReduce, "halving", neighbours_first);
  expect_order(Operation::kAllReduce, "tree", subtrees);
}

TEST(Addition, OfReduceAndReduceScatterIsAsDocumented) {
  expect_order(Operation::kReduce, "direct", in_rank_order);
  expect_order(Operation::kReduce, "two_shot", in_rank_order);
  expect_order(Operation::kReduce, "chain", in_rank_order);
  expect_order(Operation::kReduce, "tree", subtrees);
  expect_order(Operation::kReduce, "ring", around_the_ring);
  expect_order(Operation::kReduceScatter, "direct", in_rank_order);
  expect_order(Operation::kReduceScatter, "ring", around_the_ring);
  expect_order(Operation::kReduceScatter, "halving", distant_first);
}

TEST(Addition, OfFloatsShowsItsOrder) {
  // Else equal bits would prove nothing.
  int differ = 0;
  for (int64_t i = 0; i < 100; ++i) {
    const Element e{5, 100, i};
    if (in_rank_order(e).value != around_the_ring(e).value) ++differ;
    EXPECT_EQ(in_rank_order(e).sum, around_the_ring(e).sum);
    EXPECT_NE(neighbours_first(e).order, subtrees(e).order);
  }
  EXPECT_GT(differ, 10);
}

TEST(Addition, InRankOrderIsLeftToThoseThatDoIt) {
  for (const Algorithm* algorithm : algorithms()) {
    Problem problem{.operation = algorithm->operation,
                    .size = 4,
                    .blocks = Blocks::equal(1, 4),
                    .receive_blocks = Blocks::equal(1, 4)};
    EXPECT_EQ(algorithm->unsupported_reason(problem), "") << algorithm->name;
    problem.options.rank_order = true;
    EXPECT_EQ(algorithm->unsupported_reason(problem).empty(),
              algorithm->reduction_order != ReductionOrder::kFixed)
        << algorithm->name;
  }
}

}  // namespace
}  // namespace torch::comms::schedule
