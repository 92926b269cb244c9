#include <gtest/gtest.h>

#include "ctran/reduction/reference.hpp"

// The small formats of floating point, through widen() and finish(): each value, and each place
// where rounding turns.
namespace torch::comms::ctran_test {
namespace {

const std::vector<Dtype> kSmall{
    Dtype::kFloat16,        Dtype::kBFloat16,       Dtype::kFloat8E5m2,   Dtype::kFloat8E4m3fn,
    Dtype::kFloat8E5m2fnuz, Dtype::kFloat8E4m3fnuz, Dtype::kFloat8E8m0fnu};

uint32_t codes_of(Dtype dtype) { return 1u << (8 * size_of(dtype)); }

std::vector<float> widened(Dtype dtype, SimdLevel level, const Memory& from, size_t count) {
  std::vector<float> into(count);
  Reduction(dtype, ReduceOpCode::kSum, level).widen(into.data(), from.data(), count);
  return into;
}

Memory settled(Dtype dtype, SimdLevel level, const std::vector<float>& from) {
  Memory into(from.size() * size_of(dtype));
  const void* const operand = from.data();
  Reduction(dtype, ReduceOpCode::kSum, level).finish(into.data(), {&operand, 1}, from.size(), 1);
  return into;
}

TEST(Conversion, WidensEveryValue) {
  for (const auto dtype : kSmall)
    for (const auto level : ctran::simd_levels()) {
      Memory all(codes_of(dtype) * size_of(dtype));
      for (uint32_t code = 0; code < codes_of(dtype); ++code)
        set_raw(all, size_of(dtype), code, code);
      const auto got = widened(dtype, level, all, codes_of(dtype));
      for (uint32_t code = 0; code < codes_of(dtype); ++code) {
        const float want = decode(dtype, code);
        ASSERT_TRUE(std::isnan(want)
                        ? std::isnan(got[code])
                        : std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(got[code]))
            << label(dtype, ReduceOpCode::kSum, level) << " code " << code << ": " << got[code]
            << ", not " << want;
      }
    }
}

// Each value, the middle to the next one, and the floats around both; and the ends of float.
std::vector<float> turning_points(Dtype dtype) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> points{0.0f,
                            -0.0f,
                            kInf,
                            -kInf,
                            std::nanf(""),
                            -std::nanf(""),
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::denorm_min()};
  for (const uint32_t nan : {0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu, 0x7f80ffffu})
    points.push_back(std::bit_cast<float>(nan));  // which no rounding may carry away
  const auto around = [&](float x) {
    for (const float point : {x, std::nextafter(x, kInf), std::nextafter(x, -kInf)}) {
      points.push_back(point);
      points.push_back(-point);
    }
  };
  float before = 0;
  for (uint32_t code = 0; code < codes_of(dtype); ++code) {
    const float value = decode(dtype, code);
    if (!std::isfinite(value) || value < 0) continue;
    around(value);
    around(before + (value - before) / 2);
    before = value;
  }
  // The first power of two that the exponent cannot hold, and half way to it.
  around(before + (before - std::nextafter(before, 0.0f)) / 2);
  for (const float factor : {1.01f, 1.0625f, 1.125f, 1.25f, 2.0f}) around(before * factor);
  return points;
}

TEST(Conversion, RoundsToNearestEvenWhereverItTurns) {
  for (const auto dtype : kSmall) {
    const auto points = turning_points(dtype);
    std::vector<uint32_t> want;
    for (const float point : points) want.push_back(encode(dtype, point));
    for (const auto level : ctran::simd_levels()) {
      const auto got = settled(dtype, level, points);
      for (size_t i = 0; i < points.size(); ++i) {
        const auto code = static_cast<uint32_t>(raw(got, size_of(dtype), i));
        if (std::isnan(points[i]))
          ASSERT_TRUE(std::isnan(decode(dtype, code))) << code;
        else
          ASSERT_EQ(code, want[i])
              << label(dtype, ReduceOpCode::kSum, level) << " of " << points[i];
      }
    }
  }
}

// Which NaN it is may differ between formats, not between levels.
TEST(Conversion, GivesTheSameBitsAtEveryLevel) {
  std::mt19937 random(1);
  std::vector<float> drawn(200'000);
  for (auto& x : drawn) x = std::bit_cast<float>(static_cast<uint32_t>(random()));
  for (const auto dtype : kSmall)
    for (const auto level : ctran::simd_levels())
      EXPECT_EQ(settled(dtype, level, drawn), settled(dtype, SimdLevel::kPortable, drawn))
          << label(dtype, ReduceOpCode::kSum, level);
}

}  // namespace
}  // namespace torch::comms::ctran_test
