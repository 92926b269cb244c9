#include "backends/gloo/local_reduction.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <torchcomms/base/error.hpp>

#include "backends/gloo/flat_view.hpp"
#include "backends/gloo/samples.hpp"
#include "core/comm/operand_checks.hpp"

namespace torch::comms::gloo {
namespace {

using gloo_test::label;
using gloo_test::same_bits;
using gloo_test::sample;

at::Tensor combined(RedOpType op, const Tensors& inputs) {
  const auto size = static_cast<int>(inputs.size());
  const auto dtype = inputs[0].scalar_type();
  const auto plan = plan_reduction(dtype, op, size, inputs[0].numel(), CombineEngine::kLocal);
  auto output = at::empty_like(inputs[0]);
  const auto rows = scratch(inputs[0].numel() * size, dtype);
  unpack(pack(inputs), {rows});
  combine_rows(view_as(rows, plan.view), /*prepared=*/false, output, plan, size);
  return output;
}

TEST(CombineRows, GivesTheReductionInTheDtype) {
  for (const auto dtype : gloo_test::reducible())
    for (const auto op : gloo_test::kReductions)
      for (const int size : {1, 3}) {
        if (!gloo_test::is_defined(dtype, op)) continue;
        Tensors inputs;
        for (int rank = 0; rank < size; ++rank) inputs.push_back(sample(rank, dtype, {5, 3}));
        const auto want = gloo_test::reference(op, inputs);
        const auto got = combined(op, inputs);
        // An average of fp8 or half numbers may need rounding; of the others' samples it does not
        // in double.
        const bool close =
            at::allclose(got.to(at::kComplexDouble), want.to(at::kComplexDouble), 1e-6, 1e-6);
        EXPECT_TRUE(close) << label(dtype, op) << " on " << size << "\n" << got << want;
      }
}

at::Tensor unsigned_64(std::initializer_list<uint64_t> values) {
  auto tensor = at::empty({static_cast<int64_t>(values.size())}, at::kUInt64);
  std::copy(values.begin(), values.end(), static_cast<uint64_t*>(tensor.mutable_data_ptr()));
  return tensor;
}

TEST(CombineRows, OrdersAndDividesUnsignedNumbersAboveTheSignBit) {
  constexpr uint64_t kTop = std::numeric_limits<uint64_t>::max();
  const auto a = unsigned_64({kTop, 1, uint64_t{1} << 63});
  const auto b = unsigned_64({0, kTop - 1, 7});
  EXPECT_TRUE(same_bits(combined(RedOpType::MAX, {a, b}),
                        unsigned_64({kTop, kTop - 1, uint64_t{1} << 63})));
  EXPECT_TRUE(same_bits(combined(RedOpType::MIN, {a, b}), unsigned_64({0, 1, 7})));
  EXPECT_TRUE(same_bits(combined(RedOpType::AVG, {a, b}),
                        unsigned_64({kTop / 2, kTop / 2, ((uint64_t{1} << 63) + 7) / 2})));
}

TEST(CombineRows, PropagatesTheNanOfAnyRow) {
  constexpr int kSize = 3;
  for (const auto op : {RedOpType::MIN, RedOpType::MAX})
    for (const auto* dtypes : {&gloo_test::kFloats, &gloo_test::kNarrow})
      for (const auto dtype : *dtypes)
        for (int nan = 0; nan < kSize; ++nan) {
          Tensors inputs;
          for (int rank = 0; rank < kSize; ++rank) {
            const double value = rank == nan ? std::nan("") : rank + 1.0;
            inputs.push_back(at::full({37}, value, at::kDouble).to(dtype));
          }
          const auto got = combined(op, inputs).to(at::kDouble);
          EXPECT_TRUE(at::isnan(got).all().item<bool>()) << label(dtype, op) << ", row " << nan;
        }
}

TEST(CombineRows, AveragesNarrowIntegersWithoutOverflow) {
  const auto full = [](at::ScalarType dtype, int64_t value) {
    return at::full({2}, value, at::kLong).to(dtype);
  };
  EXPECT_EQ(combined(RedOpType::AVG, {full(at::kChar, 100), full(at::kChar, 120)})[0].item<int>(),
            110);
  EXPECT_EQ(combined(RedOpType::AVG, {full(at::kByte, 250), full(at::kByte, 255)})[0].item<int>(),
            252);
  EXPECT_EQ(
      combined(RedOpType::AVG, {full(at::kInt, 2'000'000'000), full(at::kInt, 2'000'000'002)})[0]
          .item<int>(),
      2'000'000'001);
  EXPECT_EQ(combined(RedOpType::AVG, {full(at::kChar, -3), full(at::kChar, -4)})[0].item<int>(), -3)
      << "toward zero";
}

TEST(CombineRows, AddsHalfTypesInFloat) {
  const auto ones = [](double first) { return at::tensor({first}).to(at::kBFloat16); };
  // 256 + 1 + 1 rounds to 256 twice in bfloat16.
  EXPECT_EQ(combined(RedOpType::SUM, {ones(256), ones(1), ones(1)})[0].item<float>(), 258);
  const auto big = at::tensor({60000.0}).to(at::kHalf);
  EXPECT_EQ(combined(RedOpType::AVG, {big, big})[0].item<float>(), big[0].item<float>());
}

TEST(CombineRows, MultipliesComplexNumbersInRankOrder) {
  const auto i = at::complex(at::tensor({0.0}), at::tensor({1.0}));
  const auto got = combined(RedOpType::PRODUCT, {i, i, i}).item<c10::complex<double>>();
  EXPECT_EQ(got, (c10::complex<double>(0, -1)));
}

at::Tensor scaled(const at::Tensor& tensor, const PreMulSumFactorT& factor,
                  bool own_memory = true) {
  const auto plan = plan_reduction(tensor.scalar_type(), RedOpType::PREMUL_SUM, 3, tensor.numel(),
                                   CombineEngine::kGloo);
  require_valid_factor(factor, tensor.scalar_type(), tensor.numel());
  auto output = at::empty_like(tensor);
  write_result(prepare(tensor, plan, &factor, own_memory), output, plan, 3);
  return output;
}

TEST(Prepare, MultipliesByNumbersAndTensors) {
  const auto data = at::tensor({1.0, 2.0, 4.0});
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat, at::kFloat8_e5m2}) {
    EXPECT_TRUE(at::allclose(scaled(data.to(dtype), 0.5).to(at::kComplexDouble),
                             (data * 0.5).to(at::kComplexDouble)))
        << dtype;
    const auto each = at::tensor({1.0, 0.5, 2.0});
    EXPECT_TRUE(at::allclose(scaled(data.to(dtype), each).to(at::kComplexDouble),
                             (data * each).to(at::kComplexDouble)))
        << dtype;
  }
  for (const auto dtype : gloo_test::kIntegers)
    EXPECT_TRUE(same_bits(scaled(data.to(dtype), at::tensor({3}).to(dtype)), (data * 3).to(dtype)))
        << dtype;
  const auto turned =
      scaled(data.to(at::kComplexDouble), at::complex(at::tensor({0.0}), at::tensor({1.0})));
  EXPECT_TRUE(at::equal(at::imag(turned), data));
}

TEST(Prepare, LeavesTheInputAloneIfAskedTo) {
  const auto data = at::ones({4});
  scaled(data, 3.0, /*own_memory=*/true);
  EXPECT_TRUE(at::equal(data, at::ones({4})));
}

}  // namespace
}  // namespace torch::comms::gloo
