#include "ctran/hierarchical/rail_chunks.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace torch::comms::ctran::test {
namespace {

// Sizes around everything that matters: nothing, one, odd ones, whole parts, and one more or less.
std::vector<size_t> counts(const ChunkSizes& cuts, size_t element) {
  const size_t part = cuts.part_bytes / element, small = cuts.small_bytes / element;
  std::vector<size_t> all{0, 1, 2, 3, 7, 16, 17, 1000, 4099};
  for (const size_t edge : {small, part, 2 * part, 3 * part, 4 * part, 9 * part})
    for (const size_t count : {edge - std::min<size_t>(edge, 1), edge, edge + 1, edge + 13})
      all.push_back(count);
  return all;
}

TEST(Chunks, CoverEveryElementOnceInOrderForAllSizesRailsAndElements) {
  for (const ChunkSizes cuts :
       {ChunkSizes{1 << 20, 32 << 10}, ChunkSizes{4096, 0}, ChunkSizes{16, 64}})
    for (const size_t element : {1, 2, 4, 8, 16})
      for (const int rails : {1, 2, 3, 4, 7, 8})
        for (const size_t count : counts(cuts, element)) {
          const auto chunks = split_into_chunks(count, element, rails, cuts);
          size_t next = 0;
          for (const auto& chunk : chunks) {
            ASSERT_EQ(chunk.begin, next);
            ASSERT_GT(chunk.part, 0u);
            ASSERT_LE(chunk.part * element, std::max(cuts.part_bytes, element));
            ASSERT_TRUE(chunk.rails == 1 || chunk.rails == rails);
            next += chunk.count();
          }
          ASSERT_EQ(next, count) << element << " bytes, " << rails << " rails";
        }
}

TEST(Chunks, AllButWhatIsLeftOverBeginsAtVectors) {
  for (const size_t element : {1, 2, 4, 8})
    for (const auto& chunk : split_into_chunks(1'000'003, element, 3, {1 << 16, 0})) {
      EXPECT_EQ(chunk.begin * element % 16, 0u);
      EXPECT_TRUE(chunk.rails == 1 || chunk.part * element % 16 == 0);
    }
}

TEST(Chunks, SmallTensorsGoByOneRailAndLargeOnesFillThePipeline) {
  const ChunkSizes cuts{1 << 20, 32 << 10};
  EXPECT_EQ(split_into_chunks(1000, 4, 2, cuts), (std::vector<RailChunk>{{0, 1000, 1}}));
  const auto large = split_into_chunks(1 << 20, 4, 2, cuts);
  EXPECT_EQ(large.size(), static_cast<size_t>(kPipelineDepth));
  for (const auto& chunk : large) EXPECT_EQ(chunk.rails, 2);
}

TEST(Pieces, CoverEverythingAndAreAlike) {
  for (const size_t most : {1, 3, 64})
    for (size_t count = 0; count < 200; ++count) {
      size_t next = 0;
      for (const auto& piece : split_evenly(count, most)) {
        EXPECT_EQ(piece.begin, next);
        EXPECT_GT(piece.count, 0u);
        EXPECT_LE(piece.count, most);
        next += piece.count;
      }
      EXPECT_EQ(next, count);
    }
}

}  // namespace
}  // namespace torch::comms::ctran::test
