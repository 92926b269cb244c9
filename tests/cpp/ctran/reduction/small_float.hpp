#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "ctran/reduction/dtype.hpp"

// The formats of 8 and 16 bits by their definition: a list of values, and the nearest one of it.
namespace torch::comms::ctran_test {

using ctran::Dtype;

struct SmallFormat {
  int exponent_bits, mantissa_bits, bias;
  enum class Top { kIeee, kNanOnly, kUnsigned } top;

  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  uint32_t codes() const { return sign_bit(); }  // of magnitudes

  // The value of a magnitude, as if its exponent meant nothing else.
  double value(uint32_t code) const {
    const int exponent = static_cast<int>(code >> mantissa_bits);
    const auto mantissa = static_cast<double>(code & ((1u << mantissa_bits) - 1));
    const double unit = std::ldexp(1.0, -mantissa_bits);
    return exponent == 0 ? std::ldexp(mantissa * unit, 1 - bias)
                         : std::ldexp(1 + mantissa * unit, exponent - bias);
  }
  uint32_t largest() const {
    if (top == Top::kIeee) return codes() - (1u << mantissa_bits) - 1;
    return top == Top::kNanOnly ? codes() - 2 : codes() - 1;
  }
  uint32_t nan() const { return top == Top::kUnsigned ? sign_bit() : codes() - 1; }
  uint32_t too_large() const {
    if (top == Top::kIeee) return largest() + 1;
    return top == Top::kNanOnly ? largest() : nan();
  }

  float decode(uint32_t bits) const {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    const uint32_t code = bits & (codes() - 1);
    if (top == Top::kUnsigned && bits == sign_bit()) return kNan;
    if (top != Top::kUnsigned && code > largest())
      return top == Top::kIeee && code == largest() + 1
                 ? std::copysign(std::numeric_limits<float>::infinity(),
                                 (bits & sign_bit()) != 0 ? -1.0f : 1.0f)
                 : kNan;
    const auto magnitude = static_cast<float>(value(code));
    return (bits & sign_bit()) != 0 ? -magnitude : magnitude;
  }

  uint32_t encode(float number) const {
    if (std::isnan(number)) return nan();
    const double magnitude = std::fabs(static_cast<double>(number));
    // The first code that is not below, by bisection; one past the largest stands for all above.
    uint32_t low = 0, high = largest() + 1;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      value(middle) < magnitude ? low = middle + 1 : high = middle;
    }
    uint32_t code = low;
    if (low > 0) {
      const double below = magnitude - value(low - 1), above = value(low) - magnitude;
      if (below < above || (below == above && (low - 1) % 2 == 0)) code = low - 1;
    }
    const bool negative = std::signbit(number);
    if (code > largest()) code = too_large();
    if (top == Top::kUnsigned && (code == 0 || code == nan())) return code;
    return negative ? code | sign_bit() : code;
  }
};

inline const std::map<Dtype, SmallFormat>& small_formats() {
  using enum SmallFormat::Top;
  static const std::map<Dtype, SmallFormat> formats{{Dtype::kFloat16, {5, 10, 15, kIeee}},
                                                    {Dtype::kBFloat16, {8, 7, 127, kIeee}},
                                                    {Dtype::kFloat8E5m2, {5, 2, 15, kIeee}},
                                                    {Dtype::kFloat8E4m3fn, {4, 3, 7, kNanOnly}},
                                                    {Dtype::kFloat8E5m2fnuz, {5, 2, 16, kUnsigned}},
                                                    {Dtype::kFloat8E4m3fnuz, {4, 3, 8, kUnsigned}}};
  return formats;
}

// 2^(code - 127), 255 is NaN. To nearest in the mantissa, half way up; all that is above 2^-127
// and below 2^-126 goes up.
inline float decode_e8m0(uint32_t code) {
  return code == 255 ? std::numeric_limits<float>::quiet_NaN()
                     : std::ldexp(1.0f, static_cast<int>(code) - 127);
}
inline uint32_t encode_e8m0(float number) {
  const float magnitude = std::fabs(number);
  if (!(magnitude <= std::numeric_limits<float>::max())) return 255;
  if (magnitude <= std::ldexp(1.0f, -127)) return 0;
  if (magnitude < std::ldexp(1.0f, -126)) return 1;
  int exponent = 0;
  const float fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  return static_cast<uint32_t>(exponent - 1 + 127 + (fraction >= 0.75f ? 1 : 0));
}

inline bool is_small(Dtype dtype) {
  return small_formats().contains(dtype) || dtype == Dtype::kFloat8E8m0fnu;
}
inline float decode(Dtype dtype, uint32_t bits) {
  return dtype == Dtype::kFloat8E8m0fnu ? decode_e8m0(bits)
                                        : small_formats().at(dtype).decode(bits);
}
inline uint32_t encode(Dtype dtype, float number) {
  return dtype == Dtype::kFloat8E8m0fnu ? encode_e8m0(number)
                                        : small_formats().at(dtype).encode(number);
}

}  // namespace torch::comms::ctran_test
