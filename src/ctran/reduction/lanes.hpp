#pragma once

#include "ctran/reduction/vector.hpp"

// converted<To>(v): converts each integer of a vector to a wider or narrower one, with truncation.
// Most of these use intrinsics, because compilers split the vectors.
namespace torch::comms::ctran {
namespace {

template <class To, class From>
inline constexpr bool kWidens = sizeof(ElementOf<To>) > sizeof(ElementOf<From>);

// Whether the conversion is from elements of kFrom bytes to elements of kTo bytes.
template <class To, class From, size_t kFrom, size_t kTo>
inline constexpr bool kIs = sizeof(ElementOf<From>) == kFrom && sizeof(ElementOf<To>) == kTo;

// extended() places a vector that is smaller than a register into one; first_part() extracts it
// again. Both use an integer and not memory: a register cannot be loaded from memory before all of
// it has been written.
template <class Wide, class V>
TC_INLINE Wide extended(V v) {
  using Number = std::conditional_t<sizeof(V) == 8, uint64_t, uint32_t>;
  if constexpr (sizeof(V) == sizeof(Wide)) {
    return as<Wide>(v);
  } else {
    Number number;
    static_assert(sizeof number == sizeof v);
    __builtin_memcpy(&number, &v, sizeof v);
    return as<Wide>(Vector<Number, sizeof(Wide) / sizeof(Number)>{number});
  }
}
template <class V, class Wide>
TC_INLINE V first_part(Wide wide) {
  using Number = std::conditional_t<sizeof(V) == 8, uint64_t, uint32_t>;
  if constexpr (sizeof(V) == sizeof(Wide)) {
    return as<V>(wide);
  } else {
    const Number number = as<Vector<Number, sizeof(Wide) / sizeof(Number)>>(wide)[0];
    V v;
    static_assert(sizeof number == sizeof v);
    __builtin_memcpy(&v, &number, sizeof v);
    return v;
  }
}

#if defined(__x86_64__) && TC_VECTOR_BYTES == 64

// A mask of all lanes avoids a warning of g++ 11 and 12 in their own header.
template <class To, class From>
TC_INLINE To converted(From v) {
  constexpr bool kSigned = std::is_signed_v<ElementOf<From>>;
  if constexpr (kIs<To, From, 1, 4>)
    return as<To>(kSigned ? _mm512_maskz_cvtepi8_epi32(0xffff, as<__m128i>(v))
                          : _mm512_maskz_cvtepu8_epi32(0xffff, as<__m128i>(v)));
  else if constexpr (kIs<To, From, 2, 4>)
    return as<To>(kSigned ? _mm512_maskz_cvtepi16_epi32(0xffff, as<__m256i>(v))
                          : _mm512_maskz_cvtepu16_epi32(0xffff, as<__m256i>(v)));
  else if constexpr (kIs<To, From, 4, 8>)
    return as<To>(kSigned ? _mm512_maskz_cvtepi32_epi64(0xff, as<__m256i>(v))
                          : _mm512_maskz_cvtepu32_epi64(0xff, as<__m256i>(v)));
  else if constexpr (kIs<To, From, 4, 1>)
    return as<To>(_mm512_maskz_cvtepi32_epi8(0xffff, as<__m512i>(v)));
  else if constexpr (kIs<To, From, 4, 2>)
    return as<To>(_mm512_maskz_cvtepi32_epi16(0xffff, as<__m512i>(v)));
  else
    return as<To>(_mm512_maskz_cvtepi64_epi32(0xff, as<__m512i>(v)));
}

#elif defined(__x86_64__) && TC_VECTOR_BYTES == 32

template <class To, class From>
TC_INLINE To widened(__m128i v) {
  constexpr bool kSigned = std::is_signed_v<ElementOf<From>>;
  if constexpr (kIs<To, From, 1, 4>)
    return as<To>(kSigned ? _mm256_cvtepi8_epi32(v) : _mm256_cvtepu8_epi32(v));
  else if constexpr (kIs<To, From, 2, 4>)
    return as<To>(kSigned ? _mm256_cvtepi16_epi32(v) : _mm256_cvtepu16_epi32(v));
  else
    return as<To>(kSigned ? _mm256_cvtepi32_epi64(v) : _mm256_cvtepu32_epi64(v));
}

// Gathers the low parts of each 16 bytes, and then the low parts of both halves.
template <class To, class From>
TC_INLINE To narrowed(__m256i v) {
  if constexpr (kIs<To, From, 4, 1>)
    v = _mm256_shuffle_epi8(v, _mm256_set1_epi32(0x0c080400));
  else if constexpr (kIs<To, From, 4, 2>)
    v = _mm256_shuffle_epi8(v, _mm256_set1_epi64x(0x0d0c090805040100));
  else
    v = _mm256_shuffle_epi32(v, 0x88);
  const __m128i low = _mm256_castsi256_si128(v), high = _mm256_extracti128_si256(v, 1);
  if constexpr (sizeof(To) == 8) return first_part<To>(_mm_unpacklo_epi32(low, high));
  return first_part<To>(_mm_unpacklo_epi64(low, high));
}

template <class To, class From>
TC_INLINE To converted(From v) {
  if constexpr (kWidens<To, From>)
    return widened<To, From>(extended<__m128i>(v));
  else
    return narrowed<To, From>(as<__m256i>(v));
}

#elif defined(__x86_64__)

template <class To, class From>
TC_INLINE To converted(From v) {
  constexpr bool kSigned = std::is_signed_v<ElementOf<From>>;
  if constexpr (kIs<To, From, 1, 4>) {
    // Moves each byte to the top of a 4-byte lane, and shifts it down.
    const __m128i x = extended<__m128i>(v), zero = _mm_setzero_si128();
    const __m128i top = _mm_unpacklo_epi16(zero, _mm_unpacklo_epi8(zero, x));
    return as<To>(kSigned ? _mm_srai_epi32(top, 24) : _mm_srli_epi32(top, 24));
  } else if constexpr (kIs<To, From, 2, 4>) {
    const __m128i top = _mm_unpacklo_epi16(_mm_setzero_si128(), extended<__m128i>(v));
    return as<To>(kSigned ? _mm_srai_epi32(top, 16) : _mm_srli_epi32(top, 16));
  } else if constexpr (kIs<To, From, 4, 1>) {
    const __m128i halves =
        _mm_packs_epi32(_mm_and_si128(as<__m128i>(v), _mm_set1_epi32(255)), _mm_setzero_si128());
    return first_part<To>(_mm_packus_epi16(halves, halves));
  } else if constexpr (kIs<To, From, 4, 2>) {
    const __m128i x = _mm_srai_epi32(_mm_slli_epi32(as<__m128i>(v), 16), 16);
    return first_part<To>(_mm_packs_epi32(x, x));
  } else {
    return __builtin_convertvector(v, To);
  }
}

#elif defined(__aarch64__)

template <class To, class From>
TC_INLINE To converted(From v) {
  if constexpr (kIs<To, From, 1, 4>) {
    if constexpr (std::is_signed_v<ElementOf<From>>)
      return as<To>(vmovl_s16(vget_low_s16(vmovl_s8(extended<int8x8_t>(v)))));
    else
      return as<To>(vmovl_u16(vget_low_u16(vmovl_u8(extended<uint8x8_t>(v)))));
  } else if constexpr (kIs<To, From, 4, 1>) {
    const uint16x4_t halves = vmovn_u32(as<uint32x4_t>(v));
    return first_part<To>(vmovn_u16(vcombine_u16(halves, halves)));
  } else {
    return __builtin_convertvector(v, To);
  }
}

#else

template <class To, class From>
TC_INLINE To converted(From v) {
  return __builtin_convertvector(v, To);
}

#endif

}  // namespace
}  // namespace torch::comms::ctran
