#include "backends/gloo/order_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <ATen/ATen.h>

#include "backends/gloo/flat_view.hpp"

namespace torch::comms::gloo {
namespace {

// The elements of a tensor of the size of T.
template <class T>
std::vector<T> elements(const at::Tensor& flat) {
  std::vector<T> values(static_cast<size_t>(flat.numel()));
  if (!values.empty()) std::memcpy(values.data(), flat.const_data_ptr(), values.size() * sizeof(T));
  return values;
}
template <class T>
at::Tensor tensor_of(const std::vector<T>& values, at::ScalarType dtype) {
  auto flat = scratch(static_cast<int64_t>(values.size()), dtype);
  if (!values.empty())
    std::memcpy(flat.mutable_data_ptr(), values.data(), values.size() * sizeof(T));
  return flat;
}

template <class T>
struct Format;
template <>
struct Format<float> {
  using Bits = uint32_t;
  using Key = int32_t;
  static constexpr auto kDtype = at::kFloat;
  static constexpr auto kKeys = at::kInt;
  static constexpr Bits kNans[] = {0x7fc00000, 0xffc00000, 0x7f800001,
                                   0xff800001, 0x7fffffff, 0xffffffff};
};
template <>
struct Format<double> {
  using Bits = uint64_t;
  using Key = int64_t;
  static constexpr auto kDtype = at::kDouble;
  static constexpr auto kKeys = at::kLong;
  static constexpr Bits kNans[] = {0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001,
                                   0xfff0000000000001, 0x7fffffffffffffff, 0xffffffffffffffff};
};

// From the smallest to the largest.
template <class T>
std::vector<T> numbers() {
  using Limits = std::numeric_limits<T>;
  const std::vector<T> positive{
      Limits::denorm_min(), Limits::min(),     T{1} / 3, T{1}, T{1.5}, T{1e10},
      (Limits::max)(),      Limits::infinity()};
  std::vector<T> all;
  for (auto i = positive.rbegin(); i != positive.rend(); ++i) all.push_back(-*i);
  all.push_back(T{-0.0});
  all.push_back(T{0.0});
  all.insert(all.end(), positive.begin(), positive.end());
  return all;
}

template <class T>
class FloatKeys : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(FloatKeys, Floats);

TYPED_TEST(FloatKeys, GrowWithTheNumbers) {
  using F = Format<TypeParam>;
  for (const auto op : {RedOpType::MIN, RedOpType::MAX}) {
    const auto keys =
        to_order_keys(tensor_of(numbers<TypeParam>(), F::kDtype), OrderKeys::kFloat, op);
    ASSERT_EQ(keys.scalar_type(), F::kKeys);
    const auto got = elements<typename F::Key>(keys);
    for (size_t i = 1; i < got.size(); ++i) EXPECT_LT(got[i - 1], got[i]) << "number " << i;
  }
}

TYPED_TEST(FloatKeys, OfEveryNanWinTheReduction) {
  using F = Format<TypeParam>;
  for (const auto op : {RedOpType::MIN, RedOpType::MAX}) {
    auto values = numbers<TypeParam>();
    const size_t count = values.size();
    for (const auto bits : F::kNans) values.push_back(std::bit_cast<TypeParam>(bits));
    const auto keys = elements<typename F::Key>(
        to_order_keys(tensor_of(values, F::kDtype), OrderKeys::kFloat, op));
    for (size_t nan = count; nan < keys.size(); ++nan)
      for (size_t number = 0; number < count; ++number)
        EXPECT_TRUE(op == RedOpType::MIN ? keys[nan] < keys[number] : keys[nan] > keys[number])
            << toString(op) << " of " << values[number] << " and NaN " << nan - count;
  }
}

TYPED_TEST(FloatKeys, BecomeTheNumbersAgainInTheSameMemoryForEveryCount) {
  using F = Format<TypeParam>;
  auto all = numbers<TypeParam>();
  for (const auto bits : F::kNans) all.push_back(std::bit_cast<TypeParam>(bits));
  for (const auto op : {RedOpType::MIN, RedOpType::MAX})
    for (const size_t count : {0, 1, 5, 63, 64, 65, 127, 128, 200}) {
      std::vector<TypeParam> values;
      for (size_t i = 0; i < count; ++i) values.push_back(all[i % all.size()]);
      const auto flat = tensor_of(values, F::kDtype);
      const auto back =
          from_order_keys(to_order_keys(flat, OrderKeys::kFloat, op), OrderKeys::kFloat, F::kDtype);
      ASSERT_EQ(back.scalar_type(), F::kDtype);
      EXPECT_EQ(back.const_data_ptr(), flat.const_data_ptr());
      const auto got = elements<TypeParam>(back);
      for (size_t i = 0; i < count; ++i)
        if (std::isnan(values[i]))
          EXPECT_TRUE(std::isnan(got[i])) << i << " of " << count;
        else
          EXPECT_EQ(std::bit_cast<typename F::Bits>(got[i]),
                    std::bit_cast<typename F::Bits>(values[i]))
              << i << " of " << count;
    }
}

template <class Unsigned, class Key>
void expect_unsigned_order(at::ScalarType dtype) {
  constexpr Unsigned kTop = std::numeric_limits<Unsigned>::max();
  const std::vector<Unsigned> values{0, 1, kTop / 2, kTop / 2 + 1, kTop - 1, kTop};
  const auto keys = to_order_keys(tensor_of(values, dtype), OrderKeys::kUnsigned, RedOpType::MAX);
  const auto got = elements<Key>(keys);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
  EXPECT_EQ(elements<Unsigned>(from_order_keys(keys, OrderKeys::kUnsigned, dtype)), values);
}

TEST(UnsignedKeys, GrowWithTheNumbersAndBecomeThemAgain) {
  expect_unsigned_order<uint32_t, int32_t>(at::kInt);
  expect_unsigned_order<uint64_t, int64_t>(at::kLong);
}

}  // namespace
}  // namespace torch::comms::gloo
