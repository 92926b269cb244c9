#include "ctran/kernels/host/launch_plan.hpp"

#include <vector>

#include <gtest/gtest.h>

#include "ctran/kernels/collectives/reducer_visit.hpp"
#include "ctran/kernels/host/algorithm_table.hpp"
#include "ctran/kernels/protocol/tiling.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr KernelAlgorithm kAlgorithms[] = {
    KernelAlgorithm::kOneShotLL, KernelAlgorithm::kOneShotLL128, KernelAlgorithm::kTwoShotLL128};

KernelCall call_of(Collective collective, size_t count, Dtype dtype = Dtype::kBFloat16) {
  KernelCall call{};
  call.collective = collective;
  call.dtype = dtype;
  call.count = count;
  return call;
}

TEST(PlanTest, WorkersHaveSlots) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (int c = 0; c < static_cast<int>(Collective::kBarrier); ++c)
      for (const KernelAlgorithm algorithm : kAlgorithms)
        for (size_t count = 0; count < (size_t{1} << 31); count = count * 3 + 1)
          for (const int most : {1, 3, 17, 64, 1000}) {
            const KernelCall call = call_of(static_cast<Collective>(c), count);
            if (!can_run(ranks, call, algorithm, most)) continue;
            const LaunchPlan plan = plan_of(ranks, call, algorithm, most);
            EXPECT_LE(plan.blocks, most);
            EXPECT_LE(plan.threads, kMostThreads);
            if (plan.shape.protocol != PacketProtocol::kLL) {
              EXPECT_LE(plan.workers(), ll128_workers(ranks));
              continue;
            }
            EXPECT_LE(plan.workers(), kLLWorkers);
            EXPECT_LE(count * 2, static_cast<size_t>(plan.workers()) * kLLTile);
          }
}

TEST(PlanTest, WhatIsSoundHasAnAlgorithm) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (int c = 0; c <= static_cast<int>(Collective::kBarrier); ++c)
      for (int dtype = 0; dtype < static_cast<int>(kDtypeNumbers); ++dtype)
        for (size_t op = 0; op < kReduceOpCodes; ++op)
          for (const size_t count : {size_t{0}, size_t{1}, size_t{5000}, size_t{100000000}})
            for (const int blocks : {0, 1, 5}) {
              KernelCall call =
                  call_of(static_cast<Collective>(c), count, static_cast<Dtype>(dtype));
              call.op = static_cast<ReduceOpCode>(op);
              call.blocks = blocks;
              if (!is_valid(ranks, call)) continue;
              const KernelAlgorithmChoice choice = choose_algorithm(ranks, call);
              ASSERT_NE(choice.algorithm, KernelAlgorithm::kAutomatic)
                  << ranks << " ranks, collective " << c << ", dtype " << dtype << ", op " << op;
              EXPECT_TRUE(can_run(ranks, call, choice.algorithm, choice.blocks));
              if (blocks != 0) {
                EXPECT_LE(choice.blocks, blocks);
              }
            }
}

// What computes beside a long operation is to have processors.
TEST(PlanTest, LargeCallsOfTwoRanksLeaveHalfOfTheProcessors) {
  constexpr int kProcessors = 132;  // of an H100 or H200
  constexpr size_t kElement = 2;
  for (const auto collective :
       {Collective::kAllReduce, Collective::kBroadcast, Collective::kAllGather,
        Collective::kReduceScatter, Collective::kAllToAll})
    for (size_t bytes = size_t{4} << 20; bytes <= size_t{1} << 32; bytes *= 2) {
      const KernelCall call = call_of(collective, bytes / kElement);
      const KernelAlgorithmChoice choice = choose_algorithm(2, call);
      ASSERT_NE(choice.algorithm, KernelAlgorithm::kAutomatic);
      EXPECT_LE(plan_of(2, call, choice.algorithm, choice.blocks).blocks, kProcessors / 2);
    }
}

TEST(PlanTest, WhatMakesNoSenseIsNotTaken) {
  EXPECT_TRUE(is_valid(2, call_of(Collective::kAllReduce, 1)));
  EXPECT_FALSE(is_valid(1, call_of(Collective::kAllReduce, 1)));
  EXPECT_FALSE(is_valid(9, call_of(Collective::kAllReduce, 1)));
  EXPECT_FALSE(is_valid(2, call_of(Collective::kAllGather, 1, static_cast<Dtype>(12))));
  EXPECT_FALSE(is_valid(2, call_of(Collective::kAllGather, SIZE_MAX / 2)));
  KernelCall call = call_of(Collective::kReduce, 1);
  call.root = 2;
  EXPECT_FALSE(is_valid(2, call));
  EXPECT_TRUE(is_valid(3, call));
  call.op = ReduceOpCode::kBitAnd;
  EXPECT_FALSE(is_valid(3, call));
}

struct AsCompiled {
  ReducerId id;
  template <class F>
  bool operator()() const {
    EXPECT_EQ(F::kHot, has_long_ll128(id));
    return true;
  }
};

TEST(PlanTest, WhatIsDefinedHasOneReducer) {
  for (int dtype = 0; dtype < static_cast<int>(kDtypeNumbers); ++dtype)
    for (size_t op = 0; op < kReduceOpCodes; ++op) {
      if (!is_defined(static_cast<Dtype>(dtype), static_cast<ReduceOpCode>(op))) continue;
      const ReducerId id = reducer_id_of(static_cast<Dtype>(dtype), static_cast<ReduceOpCode>(op));
      const AsCompiled check{id};
      EXPECT_EQ(int{visit_floats<bool>(id, check)} + int{visit_small_floats<bool>(id, check)} +
                    int{visit_integers<bool>(id, check)},
                1);
    }
}

TEST(PlanTest, ARootHasNoPartOfTwoHops) {
  TeamDescriptor team{};
  team.size = 4;
  const auto params = [&](Collective collective, int root) {
    KernelCall call = call_of(collective, 3 * 1024);
    call.root = root;
    call.input = call.output = reinterpret_cast<void*>(0x1000);
    return params_of(team, call, {{PacketProtocol::kLL128, true}, 1, 64});
  };
  const size_t bytes = params(Collective::kAllReduce, 0).bytes;
  for (const Collective collective : {Collective::kBroadcast, Collective::kReduce}) {
    EXPECT_EQ(params(collective, 2).without_part, 2);
    EXPECT_EQ(params(collective, 2).part, part_bytes(bytes, 3));
  }
  EXPECT_EQ(params(Collective::kAllReduce, 2).without_part, kMaxRanks);
  EXPECT_EQ(params(Collective::kAllReduce, 2).part, part_bytes(bytes, 4));
}

// One hop: what a rank sends is what its peer receives. Two: so is each hop.
TEST(PlanTest, SendersAndReceiversAgree) {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks)
    for (int c = 0; c < static_cast<int>(Collective::kBarrier); ++c)
      for (int root = 0; root < ranks; ++root)
        for (const bool two_hops : {false, true}) {
          std::vector<CollectiveParams> all;
          for (int rank = 0; rank < ranks; ++rank) {
            TeamDescriptor team{};
            team.rank = rank, team.size = ranks;
            KernelCall call = call_of(static_cast<Collective>(c), 8);
            call.root = root;
            call.input = call.output = reinterpret_cast<void*>(0x1000);
            all.push_back(params_of(team, call, {{PacketProtocol::kLL128, two_hops}, 1, 64}));
          }
          for (int a = 0; a < ranks; ++a)
            for (int b = 0; b < ranks; ++b) {
              EXPECT_EQ(all[a].send_to >> b & 1, all[b].receive_from >> a & 1);
              if (two_hops) {
                EXPECT_EQ(all[a].gather_to >> b & 1, all[b].gather_from >> a & 1);
              }
              if (a == b) {
                EXPECT_EQ(all[a].send_to >> b & 1, 0u);
              }
            }
        }
}

TEST(PlanTest, LeanKernelsAreForWholeVectorsThatAreAdded) {
  alignas(16) static char memory[4096];
  TeamDescriptor team{};
  team.size = 4;
  const auto is_lean_of = [&](KernelCall call, size_t shift = 0) {
    call.input = memory + shift;
    call.output = memory + 2048 + shift;
    return is_lean(params_of(team, call, plan_of(4, call, KernelAlgorithm::kOneShotLL, 64)));
  };
  KernelCall call = call_of(Collective::kAllReduce, 64);
  EXPECT_TRUE(is_lean_of(call));
  EXPECT_FALSE(is_lean_of(call, 8));
  EXPECT_FALSE(is_lean_of(call_of(Collective::kAllReduce, 63)));
  call.op = ReduceOpCode::kAverage;
  EXPECT_FALSE(is_lean_of(call));
  call.op = ReduceOpCode::kPremulSum;
  EXPECT_FALSE(is_lean_of(call));
  EXPECT_TRUE(is_lean_of(call_of(Collective::kAllGather, 8)));
  EXPECT_FALSE(is_lean_of(call_of(Collective::kAllGather, 9)));
}

TEST(PlanTest, OddMemoryIsReadInSmallerUnits) {
  TeamDescriptor team{};
  team.size = 2;
  KernelCall call = call_of(Collective::kAllReduce, 100);
  call.input = reinterpret_cast<void*>(0x1000);
  call.output = reinterpret_cast<void*>(0x2000);
  EXPECT_TRUE(params_of(team, call, {{PacketProtocol::kLL, false}, 1, 64}).is_aligned);
  EXPECT_EQ(params_of(team, call, {{PacketProtocol::kLL, false}, 1, 64}).unit, 8u);
  call.count = 101;
  EXPECT_TRUE(params_of(team, call, {{PacketProtocol::kLL, false}, 1, 64}).is_aligned);
  EXPECT_EQ(params_of(team, call, {{PacketProtocol::kLL, false}, 1, 64}).unit, 2u);
  call.output = reinterpret_cast<void*>(0x2004);
  EXPECT_FALSE(params_of(team, call, {{PacketProtocol::kLL, false}, 1, 64}).is_aligned);
  // Parts that do not begin at 16 bytes.
  call = call_of(Collective::kAllGather, 101);
  EXPECT_FALSE(params_of(team, call, {{PacketProtocol::kLL, false}, 1, 64}).is_aligned);
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
