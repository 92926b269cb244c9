#include "ctran/engine/plan/collective_plan.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/os/cache_info.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Operation;

constexpr int kRanks = 4;
constexpr int64_t kLarge = 64 << 20, kSmall = 1 << 10;  // bytes of a rank's part

struct Recipe {
  Operation operation;
  std::string_view algorithm;
  int64_t bytes;
  int rank = 1;
  ReduceOpCode op = ReduceOpCode::kSum;
};

// Of float32.
EngineCall call_of(const Recipe& recipe) {
  EngineCall call{.name = "the test",
                  .operation = recipe.operation,
                  .dtype = static_cast<uint8_t>(Dtype::kFloat32),
                  .element_bytes = 4,
                  .op = recipe.op,
                  .algorithm = schedule::find_algorithm(recipe.operation, recipe.algorithm),
                  .chunk = 0};
  call.blocks = schedule::Blocks::even(kRanks * recipe.bytes / 4, kRanks);
  return call;
}
CollectivePlan plan_of(const Recipe& recipe) {
  return CollectivePlan(call_of(recipe), {.rank = recipe.rank, .size = kRanks}, choose_by_size);
}

struct Passing {
  int received = 0, copied = 0;  // messages, local copies
  bool operator==(const Passing&) const = default;
};

Passing passing_of(const CollectivePlan& plan) {
  Passing passing;
  StepPlan own;
  schedule::Step memory;
  for (int64_t t = 0; t < plan.steps(); ++t) {
    const auto& step = plan.step(t, own, memory);
    for (const auto& message : step.receives) passing.received += message.is_non_temporal ? 1 : 0;
    for (const auto& local : step.local_actions) passing.copied += local.is_non_temporal ? 1 : 0;
  }
  return passing;
}

TEST(Plan, WritesResultsThatNoCacheHoldsPastThem) {
  EXPECT_EQ(passing_of(plan_of({Operation::kAllGather, "direct", kLarge})), (Passing{3, 1}));
  EXPECT_EQ(passing_of(plan_of({Operation::kAllGather, "direct", kSmall})), Passing{});
  EXPECT_EQ(passing_of(plan_of({Operation::kBroadcast, "direct", kLarge})), (Passing{1, 0}));
}

TEST(Plan, FitsCallsWithTheSameFactorBitByBit) {
  const double factors[] = {2.0, 0.0, -0.0, std::nan("")};
  for (const auto& of_plan : factors)
    for (const auto& of_call : factors) {
      auto call = call_of({Operation::kAllReduce, "ring", kSmall, 1, ReduceOpCode::kPremulSum});
      call.factor.real = of_plan;
      const CollectivePlan plan(call, {.rank = 1, .size = kRanks}, choose_by_size);
      call.factor.real = of_call;
      EXPECT_EQ(plan.matches(call), &of_call == &of_plan) << of_plan << " and " << of_call;
    }
}

TEST(Plan, KeepsInTheCachesWhatItReadsAgain) {
  // Parts go around: only the last one is not handed on. The own one is sent out of the input.
  EXPECT_EQ(passing_of(plan_of({Operation::kAllGather, "ring", kLarge})), (Passing{1, 1}));
  // Rank 2 of the tree hands on to rank 3, which is a leaf.
  EXPECT_EQ(passing_of(plan_of({Operation::kBroadcast, "tree", kLarge, 2})), Passing{});
  EXPECT_EQ(passing_of(plan_of({Operation::kBroadcast, "tree", kLarge, 3})), (Passing{1, 0}));
  // The own sum is sent to the others; theirs are results.
  EXPECT_EQ(passing_of(plan_of({Operation::kAllReduce, "two_shot", kLarge})), (Passing{3, 0}));
}

TEST(Plan, KeepsInTheCachesWhatIsDividedAtTheEnd) {
  EXPECT_EQ(passing_of(plan_of({Operation::kAllReduce, "ring", kLarge, 1, ReduceOpCode::kAverage}))
                .received,
            0);
}

}  // namespace
}  // namespace torch::comms::ctran
