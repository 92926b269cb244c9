#include "ctran/kernels/layout.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "ctran/kernels/tiling.hpp"

namespace torch::comms::ctran::kernels {
namespace {

struct Piece {
  size_t begin, end;
  bool operator<(const Piece& other) const { return begin < other.begin; }
};

int workers_of(WireKind wire, int ranks) {
  return wire == WireKind::kLL ? kLLWorkers : line_workers(ranks);
}

// Everything that is written in the workspace of `receiver`.
std::vector<Piece> all_pieces(const Layout& layout, int receiver) {
  std::vector<Piece> pieces = {{0, sizeof(Header)}};
  for (const WireKind wire : {WireKind::kLL, WireKind::kLine})
    for (int worker = 0; worker < workers_of(wire, layout.ranks); ++worker)
      for (int source = 0; source < layout.ranks; ++source) {
        if (wire == WireKind::kLine) {
          const size_t ack = layout.acks + ack_offset(worker, source);
          pieces.push_back({ack, ack + 8});
        }
        if (source == receiver) continue;
        for (int slot = 0; slot < slots_of(wire); ++slot) {
          const size_t at =
              layout.region(wire) + slot_offset(wire, layout.ranks, worker, slot, receiver, source);
          pieces.push_back({at, at + slot_bytes(wire)});
        }
      }
  return pieces;
}

TEST(LayoutTest, NothingOverlapsAndAllIsInside) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (const int receiver : {0, ranks - 1}) {
      const Layout layout(ranks);
      auto pieces = all_pieces(layout, receiver);
      std::ranges::sort(pieces, {}, &Piece::begin);
      for (size_t i = 1; i < pieces.size(); ++i)
        ASSERT_LE(pieces[i - 1].end, pieces[i].begin) << ranks << " ranks";
      EXPECT_LE(pieces.back().end, layout.bytes);
      EXPECT_EQ(layout.ll % 4096, 0u);
    }
}

TEST(LayoutTest, MemoryIsBounded) {
  for (int ranks = 2; ranks <= 4; ++ranks)
    EXPECT_LE(Layout(ranks).bytes, size_t{64} << 20) << ranks;
  EXPECT_LE(Layout(8).bytes, size_t{64} << 20);
}

TEST(LayoutTest, RowsOfAGenerationCoverItsSlots) {
  const Layout layout(5);
  const size_t row = layout.ll_generation_bytes();
  for (const int generation : {0, 1})
    for (const int worker : {0, 1, kLLWorkers - 1}) {
      const size_t begin =
          layout.ll + static_cast<size_t>(worker) * 2 * row + static_cast<size_t>(generation) * row;
      EXPECT_EQ(layout.ll + slot_offset(WireKind::kLL, 5, worker, generation, 2, 0), begin);
      EXPECT_EQ(layout.ll + slot_offset(WireKind::kLL, 5, worker, generation, 2, 4) + kLLSlot,
                begin + row);
    }
  const size_t row_of_lines = layout.line_generation_bytes();
  for (const int generation : {0, 1})
    for (const int worker : {0, 1, line_workers(5) - 1}) {
      const size_t begin =
          (static_cast<size_t>(worker) * 2 + static_cast<size_t>(generation)) * row_of_lines;
      const auto offset = [&](int ring, int source) {
        return slot_offset(WireKind::kLine, 5, worker, generation * kRing + ring, 2, source);
      };
      EXPECT_EQ(offset(0, 0), begin);
      EXPECT_EQ(offset(kRing - 1, 4) + kLineSlot, begin + row_of_lines);
    }
}

TEST(TilingTest, PartsCoverATensor) {
  for (const size_t bytes :
       {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{129}, size_t{1000}, size_t{123457}})
    for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
      size_t at = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Range part = part_of(bytes, part_bytes(bytes, ranks), rank);
        EXPECT_EQ(part.begin, at);
        EXPECT_LE(part.begin, part.end);
        EXPECT_LE(part.end - part.begin, part_bytes(bytes, ranks));
        EXPECT_TRUE(part.begin % 128 == 0 || part.begin == bytes);
        at = part.end;
      }
      EXPECT_EQ(at, bytes);
    }
}

TEST(TilingTest, LinesHoldATileOnce) {
  for (const bool wide : {false, true}) {
    std::set<size_t> seen;
    for (uint32_t lane = 0; lane < kWarp; ++lane) {
      const size_t offset = line_offset(lane, wide);
      if (offset == kNowhere) continue;
      EXPECT_EQ(offset % line_width(lane), 0u);
      for (size_t i = 0; i < line_width(lane); ++i) EXPECT_TRUE(seen.insert(offset + i).second);
    }
    const size_t bytes = (wide ? kWideLineTile : kLineTile) / kLineVectors;
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
  EXPECT_EQ(steps_of(WireKind::kLine, 0, 4), 0u);
  EXPECT_EQ(steps_of(WireKind::kLine, 1, 4), 1u);
  EXPECT_EQ(steps_of(WireKind::kLine, 4 * kLineTile, 4), 1u);
  EXPECT_EQ(steps_of(WireKind::kLine, 4 * kLineTile + 1, 4), 2u);
  EXPECT_EQ(steps_of(WireKind::kWideLine, 10 * kWideLineTile, 3), 4u);
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
