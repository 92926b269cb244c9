#include "ctran/kernels/protocol/layout.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "ctran/kernels/protocol/tiling.hpp"

namespace torch::comms::ctran::kernels {
namespace {

// What clears a generation, and what keeps launches of lines of two kinds apart.
TEST(LayoutTest, AGenerationsSlotsLieTogether) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (const PacketProtocol protocol :
         {PacketProtocol::kLL, PacketProtocol::kLL128, PacketProtocol::kLongLL128}) {
      if (protocol == PacketProtocol::kLongLL128 && !has_long_ll128(ranks)) continue;
      const size_t run = generation_bytes(protocol, ranks);
      for (int source = 1; source < ranks; ++source)
        for (const int generation : {0, 1})
          for (const int worker : {0, 1, most_workers(protocol, ranks) - 1})
            for (int index = 0; index < slots_per_generation(protocol); ++index) {
              const size_t at = slot_offset(protocol, ranks, worker, generation, index, 0, source);
              const auto number = static_cast<size_t>(peer_index(0, source) * 2 + generation);
              EXPECT_GE(at, number * run);
              EXPECT_LE(at + slot_bytes(protocol), (number + 1) * run);
            }
    }
}

TEST(TilingTest, PartsCoverATensor) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{1000}, size_t{123457}})
    for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
      size_t at = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const TensorRange part = part_of(bytes, part_bytes(bytes, ranks), rank);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.begin, part.end);
        EXPECT_LE(part.end - part.begin, part_bytes(bytes, ranks));
        EXPECT_TRUE(part.begin % 128 == 0 || part.begin == bytes);
        at = part.end;
      }
      EXPECT_EQ(at, bytes);
    }
}

TEST(TilingTest, PartsOfAllRanksButOneCoverATensor) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{129}, size_t{1000}, size_t{123457}})
    for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
      for (int without = 0; without <= ranks; ++without) {
        const int owners = without == ranks ? ranks : ranks - 1;
        size_t at = 0;
        for (int rank = 0; rank < ranks; ++rank) {
          const TensorRange part = part_of(bytes, part_bytes(bytes, owners), rank,
                                           without == ranks ? kMaxRanks : without);
          if (rank == without) {
            EXPECT_EQ(part.begin, part.end);
            continue;
          }
          EXPECT_EQ(part.begin, at);
          at = part.end;
        }
        EXPECT_EQ(at, bytes);
      }
}

TEST(TilingTest, LinesHoldATileOnce) {
  for (const bool wide : {false, true}) {
    std::set<size_t> seen;
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      const size_t offset = ll128_offset(lane, wide);
      if (offset == kNowhere) continue;
      EXPECT_EQ(offset % ll128_width(lane), 0u);
      for (size_t i = 0; i < ll128_width(lane); ++i) EXPECT_TRUE(seen.insert(offset + i).second);
    }
    const size_t bytes = (wide ? kWideLL128Tile : kLL128Tile) / kLL128Vectors;
    EXPECT_EQ(seen.size(), bytes);
    EXPECT_EQ(*seen.rbegin(), bytes - 1);
  }
}

TEST(TilingTest, UnitsDivideAllAddresses) {
  EXPECT_EQ(unit_of(0), 8u);
  EXPECT_EQ(unit_of(64), 8u);
  EXPECT_EQ(unit_of(12), 4u);
  EXPECT_EQ(unit_of(64 | 2), 2u);
  EXPECT_EQ(unit_of(7), 1u);
}

TEST(TilingTest, StepsCountTheLastTile) {
  EXPECT_EQ(steps_of(PacketProtocol::kLL128, 0, 4), 0u);
  EXPECT_EQ(steps_of(PacketProtocol::kLL128, 1, 4), 1u);
  EXPECT_EQ(steps_of(PacketProtocol::kLL128, 4 * kLL128Tile, 4), 1u);
  EXPECT_EQ(steps_of(PacketProtocol::kLL128, 4 * kLL128Tile + 1, 4), 2u);
  EXPECT_EQ(steps_of(PacketProtocol::kWideLL128, 10 * kWideLL128Tile, 3), 4u);
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
