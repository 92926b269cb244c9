#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "ctran/kernels/collectives/reducer_visit.hpp"
#include "ctran/kernels/collectives/scaling.hpp"
#include "ctran/reduction/elements.hpp"
#include "ctran/reduction/reduction.hpp"

// What the kernels compute is held against the arithmetic of the host, bit for bit; NaN is NaN.
namespace torch::comms::ctran::kernels {
namespace {

constexpr size_t kVectors = 512;

using Vectors = std::vector<Vector16>;

Vectors random_vectors(std::mt19937_64& random, Dtype dtype) {
  Vectors vectors(kVectors);
  auto* bytes = reinterpret_cast<uint8_t*>(vectors.data());
  for (size_t i = 0; i < kVectors * 16; ++i)
    bytes[i] = static_cast<uint8_t>(dtype == Dtype::kBool ? random() % 2 : random());
  return vectors;
}

void expect_same(Dtype dtype, const Vectors& got, const Vectors& want) {
  const size_t element = size_of(dtype);
  const auto* g = reinterpret_cast<const std::byte*>(got.data());
  const auto* w = reinterpret_cast<const std::byte*>(want.data());
  for (size_t i = 0; i < kVectors * 16; i += element) {
    if (std::memcmp(g + i, w + i, element) == 0) continue;
    ASSERT_TRUE(ctran_test::is_nan(dtype, g + i) && ctran_test::is_nan(dtype, w + i))
        << "element " << i / element << " of " << name_of(dtype);
  }
}

struct ReduceAll {
  const std::vector<Vectors>& inputs;
  uint32_t divisor;
  Vectors& result;
  template <class F>
  bool operator()() const {
    for (size_t i = 0; i < kVectors; ++i) {
      F reducer{};
      for (size_t r = 0; r < inputs.size(); ++r) reducer.step(inputs[r][i], r == 0);
      result[i] = reducer.end(divisor);
    }
    return true;
  }
};

bool reduce(Dtype dtype, ReduceOpCode op, const std::vector<Vectors>& inputs, Vectors& result) {
  const bool divides = op == ReduceOpCode::kAverage && dtype != Dtype::kBool;
  const ReduceAll all{inputs, divides ? static_cast<uint32_t>(inputs.size()) : 1, result};
  const ReducerId id = reducer_id_of(dtype, op);
  const int found = int{visit_floats<bool>(id, all)} + int{visit_small_floats<bool>(id, all)} +
                    int{visit_integers<bool>(id, all)};
  return found == 1;
}

TEST(KernelArithmeticTest, IsDefinedWhereTheHostsIs) {
  for (int dtype = 0; dtype < 64; ++dtype)
    for (size_t op = 0; op < kReduceOpCodes + 2; ++op)
      EXPECT_EQ(is_defined(static_cast<Dtype>(dtype), static_cast<ReduceOpCode>(op)),
                Reduction::is_defined(static_cast<Dtype>(dtype), static_cast<ReduceOpCode>(op)))
          << dtype << " " << op;
}

TEST(KernelArithmeticTest, ReducesAsTheHostDoes) {
  std::mt19937_64 random(5);
  for (const Dtype dtype : ctran_test::kDtypes)
    for (size_t o = 0; o < kReduceOpCodes; ++o) {
      const auto op = static_cast<ReduceOpCode>(o);
      if (!is_defined(dtype, op) || op == ReduceOpCode::kPremulSum) continue;
      for (size_t ranks = 2; ranks <= 8; ranks += 3) {
        std::vector<Vectors> inputs;
        for (size_t r = 0; r < ranks; ++r) inputs.push_back(random_vectors(random, dtype));
        std::vector<const void*> operands;
        for (const auto& input : inputs) operands.push_back(input.data());
        Vectors got(kVectors), want(kVectors);
        ASSERT_TRUE(reduce(dtype, op, inputs, got)) << name_of(dtype) << " " << name_of(op);
        Reduction(dtype, op).combine_all(want.data(), operands, kVectors * 16 / size_of(dtype),
                                         static_cast<uint32_t>(ranks));
        SCOPED_TRACE(std::string(name_of(op)) + " of " + std::to_string(ranks));
        expect_same(dtype, got, want);
      }
    }
}

// The NaN is at every place of a vector, of every rank, and of every kind that the format has.
TEST(KernelArithmeticTest, MinAndMaxPropagateTheNanOfAnyRank) {
  constexpr size_t kRanks = 3;
  for (const Dtype dtype : ctran_test::kDtypes)
    for (const ReduceOpCode op : {ReduceOpCode::kMin, ReduceOpCode::kMax}) {
      if (!is_defined(dtype, op) || !ctran_test::is_float(dtype)) continue;
      const size_t bytes = size_of(dtype), count = kVectors * 16 / bytes;
      const auto nans = ctran_test::nans_of(dtype);
      std::mt19937_64 random(7);
      std::vector<Vectors> inputs;
      for (size_t rank = 0; rank < kRanks; ++rank) inputs.push_back(random_vectors(random, dtype));
      for (size_t i = 0; i < count; ++i) {
        // In the order of lanes, and then of ranks.
        auto* const at = reinterpret_cast<std::byte*>(inputs[i / (16 / bytes) % kRanks].data());
        std::memcpy(at + i * bytes, &nans[i % nans.size()], bytes);
      }
      Vectors got(kVectors);
      ASSERT_TRUE(reduce(dtype, op, inputs, got));
      const auto* const result = reinterpret_cast<const std::byte*>(got.data());
      for (size_t i = 0; i < count; ++i)
        ASSERT_TRUE(ctran_test::is_nan(dtype, result + i * bytes))
            << name_of(op) << " of " << name_of(dtype) << ", element " << i;
    }
}

TEST(KernelArithmeticTest, ScalesAsTheHostDoes) {
  std::mt19937_64 random(6);
  for (const Dtype dtype : ctran_test::kDtypes) {
    if (!is_defined(dtype, ReduceOpCode::kPremulSum)) continue;
    for (const double value : {1.0, -2.0, 0.5, 3.0}) {
      const KernelPremulFactor factor = factor_from(value);
      const Vectors from = random_vectors(random, dtype);
      Vectors got(kVectors), want(kVectors);
      for (size_t i = 0; i < kVectors; ++i) got[i] = scaled(dtype, factor, from[i]);
      Reduction(dtype, ReduceOpCode::kPremulSum)
          .scale(want.data(), from.data(), kVectors * 16 / size_of(dtype),
                 {factor.real, factor.imaginary, factor.integer});
      SCOPED_TRACE(value);
      expect_same(dtype, got, want);
    }
  }
}

TEST(KernelArithmeticTest, AFactorIsReadFromMemoryOfAnyAlignment) {
  alignas(16) uint8_t memory[17] = {};
  const float number = -2.5f;
  std::memcpy(memory + 1, &number, sizeof number);
  EXPECT_EQ(factor_at(Dtype::kFloat32, memory + 1).real, -2.5);
  const double parts[] = {0.5, 4};
  std::memcpy(memory + 1, parts, sizeof parts);
  const KernelPremulFactor complex = factor_at(Dtype::kComplex128, memory + 1);
  EXPECT_EQ(complex.real, 0.5);
  EXPECT_EQ(complex.imaginary, 4);
  const int16_t integer = -3;
  std::memcpy(memory + 1, &integer, sizeof integer);
  EXPECT_EQ(static_cast<uint16_t>(factor_at(Dtype::kInt16, memory + 1).integer), 0xfffd);
}

TEST(KernelArithmeticTest, ThePatternOfNanIsNan) {
  for (const Dtype dtype : ctran_test::kDtypes) {
    const uint64_t nan = nan_of(dtype);
    std::byte bytes[16];
    std::memcpy(bytes, &nan, 8);
    std::memcpy(bytes + 8, &nan, 8);
    const bool floats =
        is_defined(dtype, ReduceOpCode::kSum) && !is_defined(dtype, ReduceOpCode::kBitAnd);
    EXPECT_EQ(nan != 0, floats) << name_of(dtype);
    if (!floats) continue;
    for (size_t at = 0; at < 16; at += size_of(dtype))
      EXPECT_TRUE(ctran_test::is_nan(dtype, bytes + at)) << name_of(dtype);
  }
}

}  // namespace
}  // namespace torch::comms::ctran::kernels
