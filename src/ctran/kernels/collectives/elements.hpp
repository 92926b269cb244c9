#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include "ctran/kernels/protocol/portable.hpp"

// How elements are stored in memory (Stored), and the type in which they are computed (Lane). It is
// the arithmetic that the host does with vectors, for one element.
namespace torch::comms::ctran::kernels {

template <class To, class From>
TC_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <class T, class Wide = T>
struct Plain {
  using Stored = T;
  using Lane = Wide;
  static TC_BOTH Wide decode(T v) { return static_cast<Wide>(v); }
  static TC_BOTH T encode(Wide v) { return static_cast<T>(v); }
};

inline constexpr uint32_t kFloatInfinity = 0x7f800000, kFloatSign = 0x80000000,
                          kFloatQuiet = 0x00400000;

// What the largest exponent means, and the result for a float that is too large.
enum class TopExponent : uint8_t {
  kIeee,      // infinity and NaN; too large is infinity
  kNanOnly,   // numbers, and NaN if all bits are set; too large is the largest number
              // also for infinity
  kUnsigned,  // numbers; too large is NaN, which has the bits of -0 (there is no -0)
};

// Floating point with a sign, kExponent and kMantissa bits. encode() rounds to nearest, ties to
// even.
template <class T, int kExponent, int kMantissa, int kBias, TopExponent kTop>
struct SmallFloat {
  using Stored = T;
  using Lane = float;
  static constexpr int kMagnitude = kExponent + kMantissa, kShift = 23 - kMantissa;
  static constexpr uint32_t kMask = (1u << kMagnitude) - 1, kTopSign = 1u << kMagnitude;
  static constexpr uint32_t kLargestExponent = ((1u << kExponent) - 1) << kMantissa;
  static constexpr uint32_t kRebias = uint32_t{127 - kBias} << 23;
  static constexpr uint32_t kSmallestNormal = uint32_t{127 - kBias + 1} << 23;

  static TC_BOTH float decode(T stored) {
    const uint32_t v = stored, magnitude = v & kMask, sign = (v & kTopSign) << (31 - kMagnitude);
    constexpr float kUnit = 1.0f / static_cast<float>(uint64_t{1} << (kBias + kMantissa - 1));
    uint32_t result = magnitude < (1u << kMantissa)
                          ? bits_as<uint32_t>(static_cast<float>(magnitude) * kUnit)
                          : (magnitude << kShift) + kRebias;
    if constexpr (kTop == TopExponent::kIeee) {
      if (magnitude >= kLargestExponent) result = magnitude << kShift | kFloatInfinity;
      if (magnitude > kLargestExponent) result |= kFloatQuiet;
    } else if constexpr (kTop == TopExponent::kNanOnly) {
      if (magnitude == kMask) result = kFloatInfinity | kFloatQuiet;
    } else if (v == kTopSign) {
      return bits_as<float>(kFloatInfinity | kFloatQuiet);
    }
    return bits_as<float>(result | sign);
  }

  static TC_BOTH T encode(float value) {
    const uint32_t v = bits_as<uint32_t>(value), magnitude = v & ~kFloatSign;
    const uint32_t sign = (v & kFloatSign) >> (31 - kMagnitude);
    // The addition shifts the bits of a denormal out, rounding them.
    constexpr uint32_t kMagic = uint32_t{127 - kBias + kShift + 1} << 23;
    uint32_t result =
        magnitude < kSmallestNormal
            ? bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(kMagic)) - kMagic
            : (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + (magnitude >> kShift & 1)) >>
                  kShift;
    if constexpr (kTop == TopExponent::kIeee) {
      if (magnitude >= kRebias + (kLargestExponent << kShift)) result = kLargestExponent;
      if (magnitude > kFloatInfinity) result = kMask;
    } else if constexpr (kTop == TopExponent::kNanOnly) {
      if (magnitude >= kRebias + (kMask << kShift) || result == kMask) result = kMask - 1;
      if (magnitude > kFloatInfinity) result = kMask;
    } else {
      if (magnitude >= kRebias + ((kMask + 1) << kShift)) return kTopSign;
      if (result == 0) return 0;
    }
    return static_cast<T>(result | sign);
  }
};
using Float8E5m2 = SmallFloat<uint8_t, 5, 2, 15, TopExponent::kIeee>;
using Float8E4m3fn = SmallFloat<uint8_t, 4, 3, 7, TopExponent::kNanOnly>;
using Float8E5m2fnuz = SmallFloat<uint8_t, 5, 2, 16, TopExponent::kUnsigned>;
using Float8E4m3fnuz = SmallFloat<uint8_t, 4, 3, 8, TopExponent::kUnsigned>;

// Powers of two by exponent, without sign and without zero; 255 is NaN. encode() drops signs.
struct Float8E8m0fnu {
  using Stored = uint8_t;
  using Lane = float;
  static TC_BOTH float decode(uint8_t v) {
    if (v == 255) return bits_as<float>(kFloatInfinity | kFloatQuiet);
    return bits_as<float>(v == 0 ? 1u << 22 : uint32_t{v} << 23);
  }
  static TC_BOTH uint8_t encode(float value) {
    const uint32_t v = bits_as<uint32_t>(value), exponent = v >> 23 & 255;
    if (exponent == 255) return 255;
    // Rounds up from half way, except that half way from 2^-127, a denormal, rounds down.
    const uint32_t limit = exponent == 0 ? 0x400001 : 0x400000;
    return static_cast<uint8_t>((v & 0x7fffff) >= limit ? exponent + 1 : exponent);
  }
};

#if defined(__CUDA_ARCH__)
struct Float16 {
  using Stored = uint16_t;
  using Lane = float;
  static __device__ __forceinline__ float decode(uint16_t v) {
    return __half2float(__ushort_as_half(v));
  }
  static __device__ __forceinline__ uint16_t encode(float v) {
    return __half_as_ushort(__float2half_rn(v));
  }
};
struct BFloat16 {
  using Stored = uint16_t;
  using Lane = float;
  static __device__ __forceinline__ float decode(uint16_t v) {
    return __uint_as_float(uint32_t{v} << 16);
  }
  static __device__ __forceinline__ uint16_t encode(float v) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
  }
};
#else
using Float16 = SmallFloat<uint16_t, 5, 10, 15, TopExponent::kIeee>;
struct BFloat16 {
  using Stored = uint16_t;
  using Lane = float;
  static TC_BOTH float decode(uint16_t v) { return bits_as<float>(uint32_t{v} << 16); }
  static TC_BOTH uint16_t encode(float value) {
    const uint32_t v = bits_as<uint32_t>(value), even = v + 0x7fff + (v >> 16 & 1);
    return static_cast<uint16_t>((value != value ? v | kFloatQuiet : even) >> 16);
  }
};
#endif

}  // namespace torch::comms::ctran::kernels
