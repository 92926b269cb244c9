#pragma once

#include <type_traits>

#include "ctran/reduction/lanes.hpp"

// Number formats: how numbers are stored in memory (Stored) and in which type they are computed
// (Vector of Lane). Conversions give the same bits on every instruction set. That excludes the
// AVX512_BF16 instructions, which flush denormals.
namespace torch::comms::ctran {
namespace {

template <class T>
inline constexpr size_t kLanesFor = TC_VECTOR_BYTES / sizeof(T);
template <class T>
using Register = Vector<T, kLanesFor<T>>;

// Numbers that are computed in the type in which they are stored. For sums and products of
// integers, which wrap, use the unsigned type.
template <class T>
struct PlainFormat {
  using Lane = T;
  using Stored = Register<T>;
  TC_INLINE static Register<T> decode(Stored v) { return v; }
  TC_INLINE static Stored encode(Register<T> v) { return v; }
};

template <class T, class Wide>
struct WideIntegerFormat {
  using Lane = Wide;
  using Stored = Vector<T, kLanesFor<Wide>>;
  TC_INLINE static Register<Wide> decode(Stored v) { return converted<Register<Wide>>(v); }
  TC_INLINE static Stored encode(Register<Wide> v) { return converted<Stored>(v); }
};

using Bits = Register<uint32_t>;
using Floats = Register<float>;

// Compares numbers below 2^31. It uses a signed comparison, because most instruction sets lack an
// unsigned one.
TC_INLINE auto less(Bits v, uint32_t limit) {
  return as<Register<int32_t>>(v) < static_cast<int32_t>(limit);
}

inline constexpr uint32_t kInfinity = 0x7f800000, kSign = 0x80000000, kQuiet = 0x00400000;

// What is known about floats before they are converted to bfloat16.
enum class BFloat16Source : uint8_t {
  kAny,
  kNoLowNan,  // no NaN has bits in its lower half; true for results of computing with bfloat16
  kExact,     // no number has bits in its lower half
};
template <BFloat16Source kKnown>
struct BFloat16Format {
  using Lane = float;
  using Stored = Vector<uint16_t, kLanesFor<float>>;
  TC_INLINE static Floats decode(Stored v) { return as<Floats>(converted<Bits>(v) << 16); }
  TC_INLINE static Stored encode(Floats value) {
    const Bits v = as<Bits>(value), even = v + 0x7fff + ((v >> 16) & 1);
    if constexpr (kKnown == BFloat16Source::kExact)
      return converted<Stored>(v >> 16);
    else if constexpr (kKnown == BFloat16Source::kNoLowNan)
      return converted<Stored>(even >> 16);  // cannot carry into the upper half of a NaN
    else
      return converted<Stored>((value != value ? v | kQuiet : even) >> 16);
  }
};

// What the largest exponent encodes, and what a float that is too large becomes.
enum class LargestExponent : uint8_t {
  kIeee,  // encodes infinity and NaN; overflow gives infinity
  // Encodes numbers, and NaN if all bits are set; overflow and infinity give the largest number.
  kNanOnly,
  kUnsigned,  // encodes numbers; overflow gives NaN, which has the bits of -0 (there is no -0)
};

// A floating-point format with a sign, kExponent and kMantissa bits. It rounds to nearest, ties to
// even.
template <class T, int kExponent, int kMantissa, int kBias, LargestExponent kTop>
struct SmallFloatFormat {
  using Lane = float;
  using Stored = Vector<T, kLanesFor<float>>;
  static constexpr int kMagnitude = kExponent + kMantissa, kShift = 23 - kMantissa;
  static constexpr uint32_t kMask = (1u << kMagnitude) - 1, kTopSign = 1u << kMagnitude;
  static constexpr uint32_t kLargestExponent = ((1u << kExponent) - 1) << kMantissa;
  static constexpr uint32_t kRebias = uint32_t{127 - kBias} << 23;
  static constexpr uint32_t kSmallestNormal = uint32_t{127 - kBias + 1} << 23;

  TC_INLINE static Floats decode(Stored stored) {
    const Bits v = converted<Bits>(stored), magnitude = v & kMask;
    // Denormals are integer multiples of the smallest one.
    constexpr float kUnit = 1.0f / static_cast<float>(uint64_t{1} << (kBias + kMantissa - 1));
    const Bits denormal =
        as<Bits>(__builtin_convertvector(as<Register<int32_t>>(magnitude), Floats) * kUnit);
    Bits result = less(magnitude, 1u << kMantissa) ? denormal : (magnitude << kShift) + kRebias;
    if constexpr (kTop == LargestExponent::kIeee) {
      const Bits special = (magnitude << kShift) | kInfinity;
      result = less(magnitude, kLargestExponent) ? result : special;
      result = less(magnitude, kLargestExponent + 1) ? result : special | kQuiet;
    } else if constexpr (kTop == LargestExponent::kNanOnly) {
      result = magnitude == kMask ? Bits{} + (kInfinity | kQuiet) : result;
    } else {
      return as<Floats>(v == kTopSign ? Bits{} + (kInfinity | kQuiet)
                                      : result | ((v & kTopSign) << (31 - kMagnitude)));
    }
    return as<Floats>(result | ((v & kTopSign) << (31 - kMagnitude)));
  }

  TC_INLINE static Stored encode(Floats value) {
    const Bits v = as<Bits>(value), magnitude = v & ~kSign;
    Bits result =
        (magnitude - kRebias + ((1u << (kShift - 1)) - 1) + ((magnitude >> kShift) & 1)) >> kShift;
    // The addition shifts the bits of a denormal out and rounds them.
    constexpr uint32_t kMagic = uint32_t{127 - kBias + kShift + 1} << 23;
    const Bits denormal = as<Bits>(as<Floats>(magnitude) + as_float(kMagic)) - kMagic;
    result = less(magnitude, kSmallestNormal) ? denormal : result;
    result = overflow(magnitude, result);
    const Bits sign = (v & kSign) >> (31 - kMagnitude);
    if constexpr (kTop == LargestExponent::kUnsigned)
      return converted<Stored>(result == 0 ? Bits{} : (result | sign));
    else
      return converted<Stored>(result | sign);
  }

 private:
  static constexpr float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }

  TC_INLINE static Bits overflow(Bits magnitude, Bits result) {
    if constexpr (kTop == LargestExponent::kIeee) {
      constexpr uint32_t kLimit = kRebias + (kLargestExponent << kShift);
      result = less(magnitude, kLimit) ? result : Bits{} + kLargestExponent;
      // float16 keeps the upper bits of a NaN, as the hardware does; torch has one NaN in fp8.
      const Bits nan = sizeof(T) == 1 ? Bits{} + kMask
                                      : ((magnitude & (kQuiet - 1)) >> kShift) | kLargestExponent |
                                            (1u << (kMantissa - 1));
      return less(magnitude, kInfinity + 1) ? result : nan;
    } else if constexpr (kTop == LargestExponent::kNanOnly) {
      constexpr uint32_t kLimit = kRebias + (kMask << kShift);
      result = (result == kMask) | ~less(magnitude, kLimit) ? Bits{} + (kMask - 1) : result;
      return less(magnitude, kInfinity + 1) ? result : Bits{} + kMask;
    } else {
      constexpr uint32_t kLimit = kRebias + ((kMask + 1) << kShift);
      return less(magnitude, kLimit) ? result : Bits{} + kTopSign;
    }
  }
};

using Float8E5m2Format = SmallFloatFormat<uint8_t, 5, 2, 15, LargestExponent::kIeee>;
using Float8E4m3fnFormat = SmallFloatFormat<uint8_t, 4, 3, 7, LargestExponent::kNanOnly>;
using Float8E5m2fnuzFormat = SmallFloatFormat<uint8_t, 5, 2, 16, LargestExponent::kUnsigned>;
using Float8E4m3fnuzFormat = SmallFloatFormat<uint8_t, 4, 3, 8, LargestExponent::kUnsigned>;

// Powers of two, stored as an exponent. There is no sign and no zero; 255 is NaN. Signs are
// dropped, as in torch.
struct Float8E8m0fnuFormat {
  using Lane = float;
  using Stored = Vector<uint8_t, kLanesFor<float>>;
  TC_INLINE static Floats decode(Stored stored) {
    const Bits v = converted<Bits>(stored);
    const Bits power = v == 0 ? Bits{} + (1u << 22) : v << 23;
    return as<Floats>(v == 255 ? Bits{} + (kInfinity | kQuiet) : power);
  }
  TC_INLINE static Stored encode(Floats value) {
    const Bits v = as<Bits>(value), exponent = (v >> 23) & 255;
    // Rounds half up, except that the value half way above 2^-127, a denormal, rounds down.
    const Bits limit = exponent == 0 ? Bits{} + 0x400001 : Bits{} + 0x400000;
    const Bits rounded = (v & 0x7fffff) >= limit ? exponent + 1 : exponent;
    return converted<Stored>(exponent == 255 ? exponent : rounded);
  }
};

#if defined(__x86_64__) && TC_VECTOR_BYTES > 16
struct Float16Format {
  using Lane = float;
  using Stored = Vector<uint16_t, kLanesFor<float>>;
#if TC_VECTOR_BYTES == 64
  // A mask of all lanes avoids a warning of g++ 11 and 12 in their own header.
  TC_INLINE static Floats decode(Stored v) {
    return as<Floats>(_mm512_maskz_cvtph_ps(0xffff, as<__m256i>(v)));
  }
  TC_INLINE static Stored encode(Floats v) {
    return as<Stored>(_mm512_maskz_cvtps_ph(0xffff, as<__m512>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#else
  TC_INLINE static Floats decode(Stored v) { return as<Floats>(_mm256_cvtph_ps(as<__m128i>(v))); }
  TC_INLINE static Stored encode(Floats v) {
    return as<Stored>(_mm256_cvtps_ph(as<__m256>(v), _MM_FROUND_TO_NEAREST_INT));
  }
#endif
};
#elif defined(__aarch64__)
struct Float16Format {
  using Lane = float;
  using Stored = Vector<uint16_t, kLanesFor<float>>;
  TC_INLINE static Floats decode(Stored v) { return as<Floats>(vcvt_f32_f16(as<float16x4_t>(v))); }
  TC_INLINE static Stored encode(Floats v) { return as<Stored>(vcvt_f16_f32(as<float32x4_t>(v))); }
};
#else
using Float16Format = SmallFloatFormat<uint16_t, 5, 10, 15, LargestExponent::kIeee>;
#endif

}  // namespace
}  // namespace torch::comms::ctran
