#include "schedule/patterns/blocks.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

#include "schedule/patterns/fold.hpp"
#include "schedule/problem.hpp"

namespace torch::comms::schedule {
namespace {

TEST(Blocks, EvenOnesCoverAllAndDifferByAtMostOne) {
  for (int64_t total = 0; total < 40; ++total)
    for (int parts = 1; parts < 12; ++parts) {
      const Blocks blocks = Blocks::even(total, parts);
      EXPECT_EQ(blocks.begin(0), 0);
      EXPECT_EQ(blocks.total(), total);
      for (int i = 0; i < parts; ++i) {
        EXPECT_GE(blocks.count(i), blocks.smallest());
        EXPECT_LE(blocks.count(i), blocks.largest());
      }
      EXPECT_LE(blocks.largest() - blocks.smallest(), 1);
      EXPECT_EQ(blocks.equal(), total % parts == 0);
    }
}

TEST(Blocks, GivenOnesAreWhatTheOffsetsSay) {
  const int64_t offsets[] = {0, 4, 4, 9};
  const Blocks blocks = Blocks::from_offsets(offsets);
  EXPECT_EQ(blocks.parts(), 3);
  EXPECT_EQ(blocks.total(), 9);
  EXPECT_EQ(blocks.largest(), 5);
  EXPECT_EQ(blocks.smallest(), 0);
  EXPECT_EQ(blocks.in(Buffer::kOutput, 2), (Range{Buffer::kOutput, 4, 5}));
  EXPECT_EQ(blocks.in(Buffer::kInput, 0, 2), (Range{Buffer::kInput, 0, 4}));
  const int64_t same[] = {0, 2, 4};
  EXPECT_FALSE(Blocks::from_offsets(same).equal()) << "another rank's may not be";
}

TEST(Blocks, AroundTheEndAreTwoRanges) {
  const int64_t offsets[] = {0, 4, 5, 9};
  const Blocks blocks = Blocks::from_offsets(offsets);
  const auto [first, second] = blocks.around(Buffer::kOutput, 2, 2);
  EXPECT_EQ(first, (Range{Buffer::kOutput, 5, 4}));
  EXPECT_EQ(second, (Range{Buffer::kOutput, 0, 4}));
  EXPECT_EQ(blocks.count_around(2, 2), 8);
  EXPECT_EQ(blocks.count_around(1, 2), 5);
}

TEST(Chunks, CoverAVectorAndNothingElse) {
  const Chunks chunks(10, 4);
  EXPECT_EQ(chunks.count(), 3);
  EXPECT_EQ(chunks.in(Buffer::kOutput, 0), (Range{Buffer::kOutput, 0, 4}));
  EXPECT_EQ(chunks.in(Buffer::kOutput, 2), (Range{Buffer::kOutput, 8, 2}));
  for (const int64_t outside : {-5, -1, 3, 1000})
    EXPECT_EQ(chunks.in(Buffer::kOutput, outside).count, 0);
  EXPECT_EQ(Chunks(10, 0).count(), 1);
  EXPECT_EQ(Chunks(0, 4).count(), 1);
  EXPECT_EQ(Chunks(8, 4).count(), 2);
}

TEST(Chunks, OfAnySizeAreInsideTheVector) {
  for (const int64_t size : {int64_t{11}, int64_t{1} << 62, INT64_MAX}) {
    const Chunks chunks(10, size);
    EXPECT_EQ(chunks.count(), 1);
    EXPECT_EQ(chunks.in(Buffer::kOutput, 0), (Range{Buffer::kOutput, 0, 10}));
    for (const int64_t outside : {int64_t{-1}, int64_t{1}, int64_t{2}, int64_t{3}, INT64_MAX})
      EXPECT_EQ(chunks.of({Buffer::kOutput, 5, 10}, outside).count, 0);
  }
}

TEST(Fold, MakesPairsOfNeighboursAndKeepsTheOrder) {
  for (int size = 1; size <= 70; ++size) {
    const Fold fold(size);
    EXPECT_EQ(fold.core() + fold.extra(), size);
    EXPECT_EQ(1 << fold.rounds(), fold.core());
    int index = 0;
    for (int rank = 0; rank < size; ++rank) {
      if (!fold.is_in_core(rank)) continue;
      EXPECT_EQ(fold.index(rank), index);
      EXPECT_EQ(fold.rank(index), rank);
      ++index;
    }
    EXPECT_EQ(index, fold.core());
    EXPECT_EQ(fold.rank(fold.core()), size);
  }
}

TEST(CeilLog2, IsExactAroundPowersOfTwo) {
  EXPECT_EQ(ceil_log2(1), 0);
  for (int k = 1; k < 30; ++k) {
    EXPECT_EQ(ceil_log2(1 << k), k);
    EXPECT_EQ(ceil_log2((1 << k) + 1), k + 1);
  }
}

TEST(Problem, RefusesWhatCannotBe) {
  EXPECT_THROW(vector_problem(Operation::kAllReduce, 4, 4, 1), std::invalid_argument);
  EXPECT_THROW(vector_problem(Operation::kAllReduce, -1, 4, 1), std::invalid_argument);
  EXPECT_THROW(vector_problem(Operation::kBroadcast, 0, 4, 1, 4), std::invalid_argument);
  EXPECT_THROW(vector_problem(Operation::kBroadcast, 0, 4, -1), std::invalid_argument);
  EXPECT_THROW(vector_problem(Operation::kBarrier, 0, 0, 0), std::invalid_argument);
  EXPECT_THROW(all_to_all_problem(0, Blocks::equal(1, 3), Blocks::equal(1, 2)),
               std::invalid_argument);
  // What a rank sends itself it receives.
  EXPECT_THROW(all_to_all_problem(1, Blocks::equal(1, 3), Blocks::equal(2, 3)),
               std::invalid_argument);
}

TEST(Problem, NeighboursGoAroundEitherWay) {
  const Problem p = vector_problem(Operation::kBarrier, 1, 4, 0);
  EXPECT_EQ(p.ring_neighbor(1), 2);
  EXPECT_EQ(p.ring_neighbor(3), 0);
  EXPECT_EQ(p.ring_neighbor(-2), 3);
  EXPECT_EQ(p.ring_neighbor(-9), 0);
}

}  // namespace
}  // namespace torch::comms::schedule
