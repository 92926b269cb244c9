#include "ctran/kernels/messages/device_counts.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "ctran/kernels/collectives/quantized.hpp"

namespace torch::comms::ctran::kernels {
namespace {

using Counts = std::vector<int64_t>;

DeviceCountedPart part(const Counts& counts, size_t elements, int rank) {
  return part_of({nullptr, counts.data(), elements}, static_cast<int>(counts.size()), rank);
}

TEST(CountedPartTest, FollowEachOtherByRank) {
  const Counts counts = {3, 0, 5, 2};
  const size_t begins[] = {0, 3, 3, 8};
  for (int rank = 0; rank < 4; ++rank) {
    const auto found = part(counts, 12, rank);
    EXPECT_TRUE(found.is_possible);
    EXPECT_EQ(found.begin, begins[rank]);
    EXPECT_EQ(found.count, static_cast<size_t>(counts[static_cast<size_t>(rank)]));
  }
  EXPECT_TRUE(part(counts, 10, 0).is_possible);
}

TEST(CountedPartTest, WhatDoesNotFitIsFoundForAllRanks) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(),
                    kLeast = std::numeric_limits<int64_t>::min();
  for (const Counts& counts :
       {Counts{3, 0, 5, 3}, Counts{11, 0, 0, 0}, Counts{0, -1, 0, 0}, Counts{kMost, kMost, 2, 0},
        Counts{1, 0, 0, kLeast}, Counts{5, kMost, -kMost, 5}})
    for (int rank = 0; rank < 4; ++rank) EXPECT_FALSE(part(counts, 10, rank).is_possible);
}

struct Given {
  int64_t counts[kMaxRanks] = {};
  TeamDescriptor team{};
  AllToAllVDynamic exchange{};

  Given(int ranks, size_t elements) {
    team.rank = 1;
    team.size = ranks;
    exchange = {this, this, elements, elements, 4, counts, counts, 0, 7};
  }
};

TEST(CountedExchangeTest, EachPeerHasARouteEachWayAndAllBlocksAreOnTheGpuAtOnce) {
  for (const int most : {15, 104, 128})
    for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
      for (const size_t elements : {size_t{0}, size_t{10}, size_t{1} << 28})
        for (const int blocks : {0, 1}) {
          Given given(ranks, elements);
          given.exchange.blocks = blocks;
          const auto p = params_of(given.team, given.exchange, most);
          EXPECT_EQ(p.collective, Collective::kAllToAllVDynamic);
          EXPECT_EQ(p.timeout_ns, 7u);
          ASSERT_EQ(p.routes_count, 2 * (ranks - 1));
          uint32_t sends = 0, receives = 0;
          int next = 0;
          for (int r = 0; r < p.routes_count; ++r) {
            const MessageRoute& route = p.routes[r];
            (route.is_receive ? receives : sends) |= 1u << route.peer;
            EXPECT_EQ(route.first_block, next);
            EXPECT_GE(route.blocks, 1);
            next += route.blocks;
          }
          const uint32_t peers = ((1u << ranks) - 1) & ~2u;
          EXPECT_EQ(sends, peers);
          EXPECT_EQ(receives, peers);
          EXPECT_EQ(p.blocks, next);
          EXPECT_GE(p.local_copy_blocks, 1);
          EXPECT_LE(p.blocks + p.local_copy_blocks, most);
          if (blocks == 1) {
            EXPECT_EQ(p.blocks, p.routes_count);
          }
        }
}

TEST(CountedExchangeTest, IsSoundWithMemory) {
  const Given given(2, 10);
  EXPECT_TRUE(is_valid(given.team, given.exchange));
  const auto refused = [&](auto change) {
    auto exchange = given.exchange;
    change(exchange);
    return !is_valid(given.team, exchange);
  };
  EXPECT_TRUE(refused([](auto& e) { e.input_counts = nullptr; }));
  EXPECT_TRUE(refused([](auto& e) { e.output_counts = nullptr; }));
  EXPECT_TRUE(refused([](auto& e) { e.input = nullptr; }));
  EXPECT_TRUE(refused([](auto& e) { e.output = nullptr; }));
  EXPECT_TRUE(refused([](auto& e) { e.element_bytes = 0; }));
  EXPECT_TRUE(refused([](auto& e) { e.blocks = -1; }));
  EXPECT_FALSE(refused([](auto& e) { e.output = nullptr, e.output_elements = 0; }));
}

QuantizedReduceScatter quantized(size_t count,
                                 KernelAlgorithm algorithm = KernelAlgorithm::kAutomatic) {
  alignas(16) static float memory[4];
  static uint64_t seed;
  return {algorithm, 0, count, memory, memory, &seed, false, 7};
}

TEST(QuantizedPlanTest, TravelsAsHalfOfItsBytes) {
  TeamDescriptor team{};
  team.rank = 2;
  team.size = 4;
  for (const size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{1} << 26}) {
    const auto call = quantized(count);
    const auto plan = plan_of(team, call);
    ASSERT_GT(plan.blocks, 0);
    const auto& p = plan.params;
    EXPECT_EQ(p.collective, Collective::kQuantizedReduceScatter);
    EXPECT_EQ(p.bytes, 2 * count);
    EXPECT_EQ(p.tiles, quotient_up(2 * count, tile_bytes(plan.shape.protocol)));
    EXPECT_EQ(p.send_stride, 4 * count);
    EXPECT_EQ(p.output_bytes, 4 * count);
    EXPECT_EQ(p.own, p.input + 2 * 4 * count);
    EXPECT_EQ(p.receive_from, 0b1011u);
    EXPECT_EQ(p.is_aligned, count % 4 == 0);
    EXPECT_EQ(p.divisor, 1u);
    EXPECT_EQ(p.seed, call.seed);
  }
  auto average = quantized(10);
  average.is_average = true;
  EXPECT_EQ(plan_of(team, average).params.divisor, 4u);
}

TEST(QuantizedPlanTest, IsNoneOfWhatHasNoKernel) {
  TeamDescriptor team{};
  team.size = 2;
  EXPECT_EQ(plan_of(team, quantized(10, KernelAlgorithm::kTwoShotLL128)).blocks, 0);
  EXPECT_EQ(plan_of(team, quantized(1 << 20, KernelAlgorithm::kOneShotLL)).blocks, 0);
  EXPECT_EQ(plan_of(team, quantized(SIZE_MAX / 8)).blocks, 0);
  auto call = quantized(10);
  call.seed = nullptr;
  EXPECT_EQ(plan_of(team, call).blocks, 0);
  for (const KernelAlgorithm algorithm :
       {KernelAlgorithm::kOneShotLL, KernelAlgorithm::kOneShotLL128})
    EXPECT_GT(plan_of(team, quantized(10, algorithm)).blocks, 0);
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
