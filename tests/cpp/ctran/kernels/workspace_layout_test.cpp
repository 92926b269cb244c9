#include "ctran/kernels/protocol/workspace_layout.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

#include "ctran/kernels/host/algorithm_table.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr size_t kMB = size_t{1} << 20;

struct Piece {
  size_t begin, end;
  bool is_first;  // of the first part
};

// Everything that is written in the workspace of `owner`, with lines of one kind.
class Pieces {
 public:
  Pieces(int ranks, PacketProtocol lines, int owner)
      : ranks_(ranks), owner_(owner), layout_(ranks) {
    add(0, sizeof(WorkspaceHeader), true);
    add(layout_.window_sync_words, sizeof(WindowSyncWords), true);
    add_acks();
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == owner) continue;
      add_slots(PacketProtocol::kLL, peer, true);
      add_slots(lines, peer, false);
      add_messages(peer);
      if (has_operand_slots(ranks)) add_operands(peer);
    }
    std::ranges::sort(all, {}, &Piece::begin);
  }

  std::vector<Piece> all;

 private:
  void add(size_t at, size_t bytes, bool is_first) { all.push_back({at, at + bytes, is_first}); }

  void add_acks() {
    for (int worker = 0; worker < ll128_workers(ranks_); ++worker)
      add(layout_.acks + ack_offset(worker, 0), sizeof(uint64_t) * kMaxRanks, true);
  }
  void add_slots(PacketProtocol protocol, int source, bool is_first) {
    for (int worker = 0; worker < most_workers(protocol, ranks_); ++worker)
      for (const int generation : {0, 1})
        for (int index = 0; index < slots_per_generation(protocol); ++index)
          add(layout_.slots_offset(protocol) +
                  slot_offset(protocol, ranks_, worker, generation, index, owner_, source),
              slot_bytes(protocol), is_first);
  }
  void add_messages(int peer) {
    add(layout_.mailboxes + mailbox_offset(owner_, peer), sizeof(Mailbox), true);
    for (int channel = 0; channel < kLineChannels; ++channel)
      for (int warp = 0; warp < kChannelWarps; ++warp)
        for (uint64_t number = 0; number < kTileRing; ++number)
          add(layout_.tiles + tile_offset(owner_, peer, channel, warp, number), kTileSlot, true);
    const auto rings = layout_.rings(ranks_, false);
    for (int channel = 0; channel < kChunkChannels; ++channel)
      for (int number = 0; number < chunk_ring(ranks_); ++number)
        add(chunk_offset(rings, rings.slots(rings.known_ring), owner_, peer, channel,
                         static_cast<uint64_t>(number)),
            kChunk, number < first_chunks(ranks_));
  }
  void add_operands(int source) {
    for (int block = 0; block < kMaxWindowBlocks; ++block)
      for (uint64_t step = 0; step < kOperandRing; ++step)
        add(layout_.operands + operand_offset(owner_, source, block, step), kWindowTile, false);
  }

  const int ranks_, owner_;
  const WorkspaceLayout layout_;
};

TEST(WorkspaceLayoutTest, NothingOverlapsAndAllIsInItsPart) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (const PacketProtocol lines :
         {PacketProtocol::kLL128, PacketProtocol::kLongLL128, PacketProtocol::kWideLL128})
      for (const int owner : {0, ranks - 1}) {
        if (lines == PacketProtocol::kLongLL128 && !has_long_ll128(ranks)) continue;
        const auto pieces = Pieces(ranks, lines, owner).all;
        const WorkspaceLayout layout(ranks);
        for (size_t i = 1; i < pieces.size(); ++i)
          ASSERT_LE(pieces[i - 1].end, pieces[i].begin) << ranks << " ranks";
        for (const auto& [begin, end, is_first] : pieces) {
          ASSERT_LE(end, is_first ? layout.rest : layout.bytes) << ranks << " ranks";
          ASSERT_GE(begin, is_first ? 0 : layout.rest) << ranks << " ranks";
        }
      }
}

TEST(WorkspaceLayoutTest, WhatHasAnAlignmentHasIt) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const WorkspaceLayout layout(ranks);
    for (const size_t offset :
         {layout.acks, layout.ll, layout.mailboxes, layout.tiles, layout.chunks,
          layout.window_sync_words, layout.ll128, layout.operands, layout.more_chunks})
      EXPECT_EQ(offset % 4096, 0u);
    EXPECT_EQ(layout.rest % WorkspaceLayout::kDevicePage, 0u);
  }
}

TEST(WorkspaceLayoutTest, MemoryIsBounded) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) {
    const WorkspaceLayout layout(ranks);
    EXPECT_LE(layout.bytes, 64 * kMB) << ranks;
    EXPECT_LE(layout.rest, (ranks <= 4 ? 14 : 32) * kMB) << ranks;
  }
}

// What the first part is for has no lines, whoever chooses.
TEST(WorkspaceLayoutTest, OnlyLinesNeedTheRest) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (int c = 0; c <= static_cast<int>(Collective::kBarrier); ++c)
      for (const auto algorithm : {KernelAlgorithm::kAutomatic, KernelAlgorithm::kOneShotLL,
                                   KernelAlgorithm::kOneShotLL128, KernelAlgorithm::kTwoShotLL128})
        for (const size_t count : {size_t{0}, size_t{100}, size_t{16} << 20}) {
          KernelCall call{};
          call.collective = static_cast<Collective>(c);
          call.algorithm = algorithm;
          call.dtype = Dtype::kFloat32;
          call.op = ReduceOpCode::kSum;
          call.count = count;
          const KernelAlgorithmChoice how = resolve_algorithm(ranks, call);
          const bool is_one_hop_of_ll = how.algorithm == KernelAlgorithm::kOneShotLL;
          if (how.algorithm == KernelAlgorithm::kAutomatic) continue;
          EXPECT_EQ(needs_full_workspace(ranks, call), !is_one_hop_of_ll)
              << ranks << " ranks, " << c;
          const bool is_large = count > 100 && call.collective != Collective::kBarrier;
          if (algorithm == KernelAlgorithm::kAutomatic) {
            EXPECT_EQ(needs_full_workspace(ranks, call), is_large) << ranks << " ranks, " << c;
          }
        }
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
