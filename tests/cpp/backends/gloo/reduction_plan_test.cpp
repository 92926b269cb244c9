#include "backends/gloo/reduction_plan.hpp"

#include <gtest/gtest.h>

#include <set>

#include <torchcomms/base/error.hpp>

#include "backends/gloo/samples.hpp"
#include "core/options/dtype_name.hpp"

namespace torch::comms::gloo {
namespace {

using gloo_test::is_defined;
using gloo_test::label;

ReductionPlan plan(at::ScalarType dtype, RedOpType op, int size = 3, int64_t count = 8) {
  return plan_reduction(dtype, op, size, count, CombineEngine::kGloo);
}

TEST(ReductionPlan, ExistsExactlyWhereTheReductionIsDefined) {
  for (const auto dtype : gloo_test::reducible())
    for (const auto op : gloo_test::kReductions) {
      if (is_defined(dtype, op)) {
        EXPECT_NO_THROW(plan(dtype, op)) << label(dtype, op);
        continue;
      }
      try {
        plan(dtype, op);
        ADD_FAILURE() << label(dtype, op);
      } catch (const CommError& e) {
        EXPECT_EQ(e.code(), Errc::kInvalidArgument);
        EXPECT_NE(e.why().find(toString(op)), std::string::npos) << e.why();
        EXPECT_NE(e.why().find(dtype_name(dtype)), std::string::npos) << e.why();
      }
    }
}

TEST(ReductionPlan, IsRefusedForDtypesWithoutArithmetic) {
  for (const auto dtype : {at::ScalarType::UInt4, at::ScalarType::Int2, at::ScalarType::QInt8,
                           at::ScalarType::Bits8, at::ScalarType::Float4_e2m1fn_x2})
    EXPECT_THROW(plan(dtype, RedOpType::SUM), CommError) << c10::toString(dtype);
  EXPECT_THROW(plan(at::kBool, RedOpType::PREMUL_SUM), CommError);
}

TEST(ReductionPlan, LeavesToGlooWhatItCanDo) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kChar, at::kByte, at::kInt, at::kLong})
    for (const auto op : {RedOpType::SUM, RedOpType::PRODUCT})
      EXPECT_TRUE(plan(dtype, op).is_plain()) << label(dtype, op);
  for (const auto op : {RedOpType::MIN, RedOpType::MAX})
    for (const auto dtype : {at::kChar, at::kByte, at::kInt, at::kLong})
      EXPECT_TRUE(plan(dtype, op).is_plain()) << label(dtype, op);
  for (const auto dtype : {at::kHalf, at::kBFloat16})
    EXPECT_TRUE(plan(dtype, RedOpType::SUM, /*size=*/2).is_plain()) << "exact on two ranks";
}

TEST(ReductionPlan, OrdersFloatingPointByKeysWhereGlooCompares) {
  for (const auto op : {RedOpType::MIN, RedOpType::MAX})
    for (const auto* dtypes : {&gloo_test::kFloats, &gloo_test::kNarrow})
      for (const auto dtype : *dtypes) {
        const auto reduction_plan = plan(dtype, op);
        EXPECT_EQ(reduction_plan.keys, OrderKeys::kFloat) << label(dtype, op);
        EXPECT_EQ(reduction_plan.compute, dtype == at::kDouble ? at::kDouble : at::kFloat);
        EXPECT_EQ(plan(dtype, op, /*size=*/1).keys, OrderKeys::kNone) << "nothing is compared";
        EXPECT_EQ(plan_reduction(dtype, op, 3, 8, CombineEngine::kLocal).keys, OrderKeys::kNone);
      }
  for (const auto dtype : gloo_test::kFloats)
    EXPECT_TRUE(plan(dtype, RedOpType::MAX, /*size=*/1).is_plain()) << dtype;
  EXPECT_EQ(plan(at::kFloat, RedOpType::SUM).keys, OrderKeys::kNone);
  EXPECT_EQ(plan(at::kInt, RedOpType::MAX).keys, OrderKeys::kNone);
}

TEST(ReductionPlan, CombinesOnlyWhatGlooHas) {
  const std::set<at::ScalarType> known{at::kHalf, at::kBFloat16, at::kFloat, at::kDouble,
                                       at::kChar, at::kByte,     at::kInt,   at::kLong};
  for (const auto dtype : gloo_test::reducible())
    for (const auto op : gloo_test::kReductions) {
      if (!is_defined(dtype, op)) continue;
      const auto reduction_plan = plan(dtype, op);
      EXPECT_TRUE(reduction_plan.gathers_inputs || known.contains(reduction_plan.compute))
          << label(dtype, op);
      EXPECT_NE(reduction_plan.combine, RedOpType::AVG);
    }
}

TEST(ReductionPlan, RoundsHalfTypesOnceWhereThatIsCheap) {
  EXPECT_EQ(plan(at::kBFloat16, RedOpType::SUM, 3, 1024).compute, at::kFloat);
  EXPECT_EQ(plan(at::kBFloat16, RedOpType::SUM, 3, 1 << 20).compute, at::kBFloat16);
  EXPECT_EQ(plan(at::kHalf, RedOpType::AVG, 2, 1 << 20).compute, at::kFloat)
      << "the sum could overflow";
  EXPECT_EQ(plan_reduction(at::kHalf, RedOpType::SUM, 2, 1 << 20, CombineEngine::kLocal).compute,
            at::kFloat);
}

}  // namespace
}  // namespace torch::comms::gloo
