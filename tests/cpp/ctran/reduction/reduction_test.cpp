#include "ctran/reduction/reduction.hpp"

#include <gtest/gtest.h>

#include <functional>

#include <torchcomms/base/error.hpp>

#include "base/os/cache_info.hpp"
#include "ctran/reduction/reference.hpp"

namespace torch::comms::ctran_test {
namespace {

constexpr size_t kCounts[] = {0, 1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 257};
constexpr size_t kMost = 257;

// Every defined reduction at every level of this machine.
void for_each_reduction(const std::function<void(const Reduction&, Dtype, ReduceOpCode)>& check) {
  for (const auto dtype : kDtypes)
    for (const auto op : kOps)
      for (const auto level : ctran::simd_levels()) {
        if (!Reduction::is_defined(dtype, op)) continue;
        SCOPED_TRACE(label(dtype, op, level));
        check(Reduction(dtype, op, level), dtype, op);
        if (testing::Test::HasFailure()) return;
      }
}

std::vector<Memory> samples(Dtype dtype, size_t operands, size_t count = kMost) {
  std::vector<Memory> all;
  for (size_t i = 0; i < operands; ++i)
    all.push_back(sample(dtype, count, static_cast<uint32_t>(i + 1)));
  return all;
}

// Memory that starts `offset` bytes past a boundary and knows when it was written outside.
class Shifted {
 public:
  Shifted(size_t bytes, size_t offset) : memory_(bytes + 256, kGuard), bytes_(bytes) {
    start_ = 64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64 + offset;
  }
  Shifted(const Memory& from, size_t offset) : Shifted(from.size(), offset) {
    std::copy(from.begin(), from.end(), data());
  }
  std::byte* data() { return memory_.data() + start_; }
  bool is_intact(size_t written) const {
    const auto guard = [](std::byte b) { return b == kGuard; };
    const auto at = memory_.begin() + static_cast<ptrdiff_t>(start_);
    return std::all_of(memory_.begin(), at, guard) &&
           std::all_of(at + static_cast<ptrdiff_t>(written), memory_.end(), guard);
  }

 private:
  static constexpr std::byte kGuard{0xa5};
  Memory memory_;
  size_t bytes_, start_ = 0;
};

TEST(Reduction, CombinesTwoOperandsForEveryCountAndAlignment) {
  for_each_reduction([](const Reduction& reduction, Dtype dtype, ReduceOpCode op) {
    const auto operands = samples(dtype, 2);
    const ReduceOpCode plain =
        op == ReduceOpCode::kAverage && dtype != Dtype::kBool ? ReduceOpCode::kSum : op;
    const auto want = reference(dtype, plain, operands, 1);
    size_t offset = 0;
    for (const size_t count : kCounts) {
      offset = (offset + 13) % 64;
      Shifted left(operands[0], offset), right(operands[1], 3 * offset % 64);
      Shifted into(want.size(), 5 * offset % 64);
      reduction.combine(into.data(), left.data(), right.data(), count);
      EXPECT_EQ(first_difference(dtype, into.data(), want, count), -1) << count << " elements";
      EXPECT_TRUE(into.is_intact(count * size_of(dtype))) << count << " elements";
    }
  });
}

TEST(Reduction, MayWriteOverEitherOperand) {
  for_each_reduction([](const Reduction& reduction, Dtype dtype, ReduceOpCode op) {
    const auto operands = samples(dtype, 2);
    const ReduceOpCode plain =
        op == ReduceOpCode::kAverage && dtype != Dtype::kBool ? ReduceOpCode::kSum : op;
    const auto want = reference(dtype, plain, operands, 1);
    auto left = operands[0], right = operands[1];
    reduction.combine(left.data(), left.data(), operands[1].data(), kMost);
    reduction.combine(right.data(), operands[0].data(), right.data(), kMost);
    EXPECT_EQ(first_difference(dtype, left.data(), want, kMost), -1) << "over the left one";
    EXPECT_EQ(first_difference(dtype, right.data(), want, kMost), -1) << "over the right one";

    auto both = operands[0];
    const auto twice = reference(dtype, plain, {operands[0], operands[0]}, 1);
    reduction.combine(both.data(), both.data(), both.data(), kMost);
    EXPECT_EQ(first_difference(dtype, both.data(), twice, kMost), -1) << "over both";
  });
}

TEST(Reduction, CombinesManyOperandsInOrderAndRoundsOnce) {
  for_each_reduction([](const Reduction& reduction, Dtype dtype, ReduceOpCode op) {
    for (const size_t many : {size_t{1}, size_t{3}, size_t{8}, Reduction::kMostOperands}) {
      const auto operands = samples(dtype, many, 70);
      const auto ranks = static_cast<uint32_t>(many);
      const auto want = reference(dtype, op, operands, ranks);
      std::vector<const void*> pointers;
      for (const auto& operand : operands) pointers.push_back(operand.data());
      for (const size_t count : {0, 1, 37, 70}) {
        Shifted into(want.size(), 1);
        reduction.combine_all(into.data(), pointers, count, ranks);
        EXPECT_EQ(first_difference(dtype, into.data(), want, count), -1)
            << many << " operands, " << count << " elements";
        EXPECT_TRUE(into.is_intact(count * size_of(dtype)));
      }
      auto last = operands.back();
      pointers.back() = last.data();
      reduction.combine_all(last.data(), pointers, 70, ranks);
      EXPECT_EQ(first_difference(dtype, last.data(), want, 70), -1) << many << ", over the last";
    }
  });
}

// widen, combine_wide, settle: the same numbers as all at once.
TEST(Reduction, RoundsOnceByWayOfTheAccumulator) {
  for_each_reduction([](const Reduction& reduction, Dtype dtype, ReduceOpCode op) {
    const size_t wide_bytes = kMost * size_of(reduction.accumulator());
    const auto operands = samples(dtype, 5);
    const auto want = reference(dtype, op, operands, 5);
    std::vector<Memory> wide(5, Memory(wide_bytes));
    std::vector<const void*> pointers;
    for (size_t i = 0; i < 5; ++i) {
      reduction.widen(wide[i].data(), operands[i].data(), kMost);
      pointers.push_back(wide[i].data());
    }
    Memory into(want.size());
    reduction.finish(into.data(), pointers, kMost, 5);
    EXPECT_EQ(first_difference(dtype, into.data(), want, kMost), -1) << "all at once";

    for (size_t i = 1; i < 5; ++i)
      reduction.combine_wide(wide[0].data(), wide[0].data(), wide[i].data(), kMost);
    reduction.finish(into.data(), std::span(pointers).first(1), kMost, 5);
    EXPECT_EQ(first_difference(dtype, into.data(), want, kMost), -1) << "one by one";
  });
}

TEST(Reduction, ScalesByAFactor) {
  const PremulFactor factor{.real = 1.3, .imaginary = -0.7, .integer = 0xfffffffffffffff9};
  for_each_reduction([&](const Reduction& reduction, Dtype dtype, ReduceOpCode op) {
    if (op != ReduceOpCode::kPremulSum) return;
    const auto from = sample(dtype, kMost, 1);
    const auto want = reference_scaled(dtype, dtype, from, factor);
    for (const size_t count : kCounts) {
      Shifted into(want.size(), 3);
      reduction.scale(into.data(), from.data(), count, factor);
      EXPECT_EQ(first_difference(dtype, into.data(), want, count), -1) << count << " elements";
      EXPECT_TRUE(into.is_intact(count * size_of(dtype)));
    }
    const Dtype accumulator = reduction.accumulator();
    const auto want_wide = reference_scaled(dtype, accumulator, from, factor);
    Memory wide(want_wide.size());
    reduction.widen_scaled(wide.data(), from.data(), kMost, factor);
    EXPECT_EQ(first_difference(accumulator, wide.data(), want_wide, kMost), -1) << "widened";
    auto place = from;
    reduction.scale(place.data(), place.data(), kMost, factor);
    EXPECT_EQ(first_difference(dtype, place.data(), want, kMost), -1) << "in place";
  });
}

// Large results go another way to memory; the same bits must arrive as from small pieces.
TEST(Reduction, GivesTheSameBitsForLargeCounts) {
  for (const auto dtype : {Dtype::kFloat32, Dtype::kBFloat16, Dtype::kFloat8E4m3fn,
                           Dtype::kComplex128, Dtype::kInt8}) {
    const size_t bytes = size_of(dtype), piece = 40016 / bytes, count = piece * 30 + 3;
    const auto left = sample(dtype, count, 1), right = sample(dtype, count, 2);
    std::vector<const void*> operands(Reduction::kMostOperands, left.data());
    operands.back() = right.data();
    ASSERT_TRUE(base::exceeds_last_level_cache(count * bytes * (operands.size() + 1)));
    ASSERT_FALSE(base::exceeds_last_level_cache(piece * bytes * (operands.size() + 1)));
    for (const auto level : ctran::simd_levels()) {
      const Reduction reduction(dtype, ReduceOpCode::kProduct, level);
      Memory want(left.size());
      for (size_t at = 0; at < count; at += piece) {
        auto from = operands;
        for (auto& operand : from) operand = static_cast<const std::byte*>(operand) + at * bytes;
        reduction.combine_all(want.data() + at * bytes, from, std::min(piece, count - at), 1);
      }
      for (const size_t offset : {size_t{0}, size_t{8}, size_t{17}}) {
        Shifted into(left.size(), offset);
        reduction.combine_all(into.data(), operands, count, 1);
        EXPECT_EQ(first_difference(dtype, into.data(), want, count), -1)
            << label(dtype, ReduceOpCode::kProduct, level) << " at " << offset;
        EXPECT_TRUE(into.is_intact(left.size()));
      }
    }
  }
}

float combined(ReduceOpCode op, float left, float right) {
  float result = 0;
  Reduction(Dtype::kFloat32, op).combine(&result, &left, &right, 1);
  return result;
}

TEST(Reduction, TakesTheLeftOfTwoZeros) {
  for (const auto op : {ReduceOpCode::kMin, ReduceOpCode::kMax}) {
    EXPECT_TRUE(std::signbit(combined(op, -0.0f, 0.0f)));
    EXPECT_FALSE(std::signbit(combined(op, 0.0f, -0.0f)));
  }
}

// NaN is in one element of one operand, at each place of the loops: several vectors, one, the rest.
TEST(Reduction, MinAndMaxPropagateEveryNanOfEitherOperandInEachLane) {
  for_each_reduction([](const Reduction& reduction, Dtype dtype, ReduceOpCode op) {
    if (!is_float(dtype) || (op != ReduceOpCode::kMin && op != ReduceOpCode::kMax)) return;
    constexpr size_t kCount = 64 + 16 + 7;
    const size_t bytes = ctran::size_of(dtype);
    Memory numbers[2] = {Memory(kCount * bytes), Memory(kCount * bytes)};
    for (size_t i = 0; i < kCount; ++i) {
      set_number(dtype, numbers[0], i, i % 2 == 0 ? 1.0 : 2.0);
      set_number(dtype, numbers[1], i, i % 3 == 0 ? 2.0 : 1.0);
    }
    const auto clean = reference(dtype, op, {numbers[0], numbers[1]}, 1);
    for (const uint64_t nan : nans_of(dtype))
      for (size_t place = 0; place < kCount; ++place)
        for (const size_t with_nan : {size_t{0}, size_t{1}}) {
          Memory operands[2] = {numbers[0], numbers[1]}, into(kCount * bytes), all(into);
          set_raw(operands[with_nan], bytes, place, nan);
          reduction.combine(into.data(), operands[0].data(), operands[1].data(), kCount);
          const void* const pointers[] = {operands[0].data(), operands[1].data(),
                                          numbers[0].data()};
          reduction.combine_all(all.data(), pointers, kCount, 1);
          for (const auto* result : {&into, &all}) {
            ASSERT_TRUE(is_nan(dtype, result->data() + place * bytes))
                << "operand " << with_nan << ", element " << place << ", NaN " << nan;
            ASSERT_EQ(first_difference(dtype, result->data(), clean, place), -1);
            const size_t next = place + 1;
            const Memory after(clean.begin() + static_cast<ptrdiff_t>(next * bytes), clean.end());
            ASSERT_EQ(first_difference(dtype, result->data() + next * bytes, after, kCount - next),
                      -1);
          }
        }
  });
}

TEST(Reduction, AveragesNarrowIntegersWithoutOverflow) {
  const int8_t a[] = {100, -3, -128}, b[] = {120, -4, -128};
  const void* const operands[] = {a, b};
  int8_t result[3];
  Reduction(Dtype::kInt8, ReduceOpCode::kAverage).combine_all(result, operands, 3, 2);
  EXPECT_EQ(result[0], 110);
  EXPECT_EQ(result[1], -3) << "toward zero";
  EXPECT_EQ(result[2], -128);
}

TEST(Reduction, AddsHalfNumbersInFloat) {
  const uint16_t large = 0x4380, one = 0x3f80;  // 256 and 1 in bfloat16
  const void* const operands[] = {&large, &one, &one};
  uint16_t result = 0;
  Reduction(Dtype::kBFloat16, ReduceOpCode::kSum).combine_all(&result, operands, 1, 3);
  EXPECT_EQ(result, 0x4381) << "258: 256 + 1 alone would round to 256";
}

TEST(Reduction, IsDefinedWhereTorchDefinesIt) {
  for (const auto op : {ReduceOpCode::kBitAnd, ReduceOpCode::kBitOr, ReduceOpCode::kBitXor}) {
    EXPECT_FALSE(Reduction::is_defined(Dtype::kFloat32, op));
    EXPECT_FALSE(Reduction::is_defined(Dtype::kComplex64, op));
    EXPECT_TRUE(Reduction::is_defined(Dtype::kBool, op));
  }
  EXPECT_FALSE(Reduction::is_defined(Dtype::kComplex128, ReduceOpCode::kMax));
  EXPECT_FALSE(Reduction::is_defined(Dtype::kBool, ReduceOpCode::kPremulSum));
  EXPECT_FALSE(Reduction::is_defined(static_cast<Dtype>(12), ReduceOpCode::kSum)) << "qint8";
  EXPECT_FALSE(Reduction::is_defined(static_cast<Dtype>(255), ReduceOpCode::kSum)) << "no dtype";
  EXPECT_FALSE(Reduction::is_defined(Dtype::kFloat32, static_cast<ReduceOpCode>(255)));
  try {
    Reduction(Dtype::kFloat16, ReduceOpCode::kBitXor);
    ADD_FAILURE();
  } catch (const CommError& e) {
    EXPECT_EQ(e.code(), Errc::kInvalidArgument);
    EXPECT_EQ(e.why(), "reduction BXOR is not defined for dtype float16");
  }
}

TEST(Reduction, RefusesWhatItCannotDo) {
  const float one = 1;
  float result = 0;
  const std::vector<const void*> many(Reduction::kMostOperands + 1, &one);
  const Reduction sum(Dtype::kFloat32, ReduceOpCode::kSum),
      average(Dtype::kInt32, ReduceOpCode::kAverage);
  EXPECT_THROW(sum.combine_all(&result, many, 1, 1), CommError);
  EXPECT_THROW(sum.combine_all(&result, {}, 1, 1), CommError);
  EXPECT_THROW(average.combine_all(&result, std::span(many).first(2), 1, 0), CommError);
  EXPECT_THROW(sum.scale(&result, &one, 1, {.real = 2}), CommError);
  EXPECT_EQ(result, 0);
  EXPECT_THROW(Reduction(Dtype::kFloat32, ReduceOpCode::kSum, static_cast<SimdLevel>(9)),
               CommError);
}

}  // namespace
}  // namespace torch::comms::ctran_test
