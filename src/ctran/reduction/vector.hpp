#pragma once

// Vectors of one instruction set. The file that compiles the loops for an instruction set defines
//   TC_VECTOR_BYTES  the width of its registers
//   TC_TARGET        the attribute that lets a function use the instruction set
// and includes these headers after that. All code is in unnamed namespaces, because every
// instruction set has its own copy.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define TC_INLINE __attribute__((always_inline)) TC_TARGET inline

namespace torch::comms::ctran {
namespace {

template <class T, size_t kLanes>
struct VectorOf {
  typedef T type __attribute__((vector_size(kLanes * sizeof(T))));
};
template <class T, size_t kLanes>
using Vector = typename VectorOf<T, kLanes>::type;

// LanesOf is a vector type with another element type and equally many lanes.
template <class V>
inline constexpr size_t kLanesOf = sizeof(V) / sizeof(std::declval<V&>()[0]);
template <class V>
using ElementOf = std::remove_cvref_t<decltype(std::declval<V&>()[0])>;
template <class T, class V>
using LanesOf = Vector<T, kLanesOf<V>>;

// Reinterprets the bits as another vector type of the same size.
template <class To, class From>
TC_INLINE To as(From v) {
  static_assert(sizeof(To) == sizeof(From));
  return (To)v;
}

template <class V, class T>
TC_INLINE V splat(T value) {
  return value - V{};  // 0 + value would lose the sign of -0
}

template <class V>
TC_INLINE V load(const std::byte* from) {
  V v;
  __builtin_memcpy(&v, from, sizeof v);
  return v;
}

template <class V>
TC_INLINE void store(std::byte* into, V v) {
  __builtin_memcpy(into, &v, sizeof v);
}

// Loads the first `bytes` of a vector; the remaining bytes are 0.
template <class V>
TC_INLINE V load_some(const std::byte* from, size_t bytes) {
#if TC_VECTOR_BYTES == 64
  const uint64_t mask = (uint64_t{1} << bytes) - 1;
  if constexpr (sizeof(V) == 64)
    return as<V>(_mm512_maskz_loadu_epi8(mask, from));
  else if constexpr (sizeof(V) == 32)
    return as<V>(_mm256_maskz_loadu_epi8(static_cast<uint32_t>(mask), from));
  else
    return as<V>(_mm_maskz_loadu_epi8(static_cast<uint16_t>(mask), from));
#else
  V v{};
  __builtin_memcpy(&v, from, bytes);
  return v;
#endif
}

template <class V>
TC_INLINE void store_some(std::byte* into, V v, size_t bytes) {
#if TC_VECTOR_BYTES == 64
  const uint64_t mask = (uint64_t{1} << bytes) - 1;
  if constexpr (sizeof(V) == 64)
    _mm512_mask_storeu_epi8(into, mask, as<__m512i>(v));
  else if constexpr (sizeof(V) == 32)
    _mm256_mask_storeu_epi8(into, static_cast<uint32_t>(mask), as<__m256i>(v));
  else
    _mm_mask_storeu_epi8(into, static_cast<uint16_t>(mask), as<__m128i>(v));
#else
  __builtin_memcpy(into, &v, bytes);
#endif
}

// Stores past the caches if the machine has such a store for this size. `into` must be aligned to
// the size.
template <class V>
TC_INLINE void store_non_temporal(std::byte* into, V v) {
#if defined(__x86_64__)
  if constexpr (sizeof(V) == 8)
    _mm_stream_si64(reinterpret_cast<long long*>(into), as<Vector<long long, 1>>(v)[0]);
  else if constexpr (sizeof(V) == 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(into), as<__m128i>(v));
#if TC_VECTOR_BYTES >= 32
  else if constexpr (sizeof(V) == 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(into), as<__m256i>(v));
#endif
#if TC_VECTOR_BYTES >= 64
  else if constexpr (sizeof(V) == 64)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(into), as<__m512i>(v));
#endif
  else
    store(into, v);
#else
  store(into, v);
#endif
}

// Orders the stores past the caches before later memory accesses.
TC_INLINE void fence_non_temporal() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

// Keeps a product rounded: prevents the compiler from fusing it with a following addition, which
// would give other bits on machines with such an instruction.
template <class V>
TC_INLINE V rounded(V v) {
#if defined(__x86_64__) && TC_VECTOR_BYTES == 64
  asm("" : "+v"(v));
#elif defined(__x86_64__)
  asm("" : "+x"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#else
  asm("" : "+m"(v));
#endif
  return v;
}

#if defined(__clang__) || __GNUC__ >= 12
template <class V, size_t... kFrom>
TC_INLINE V pick(V v, std::index_sequence<kFrom...>) {
  return __builtin_shufflevector(v, v, kFrom...);
}
#else
template <class V, size_t... kFrom>
TC_INLINE V pick(V v, std::index_sequence<kFrom...>) {
  using Index = std::conditional_t<sizeof(v[0]) == 8, int64_t, int32_t>;
  return __builtin_shuffle(v, LanesOf<Index, V>{kFrom...});
}
#endif

template <class V, size_t... kLane>
TC_INLINE V evens(V v, std::index_sequence<kLane...>) {
  return pick(v, std::index_sequence<(kLane & ~size_t{1})...>{});
}
template <class V, size_t... kLane>
TC_INLINE V odds(V v, std::index_sequence<kLane...>) {
  return pick(v, std::index_sequence<(kLane | 1)...>{});
}
template <class V, size_t... kLane>
TC_INLINE V swapped(V v, std::index_sequence<kLane...>) {
  return pick(v, std::index_sequence<(kLane ^ 1)...>{});
}

}  // namespace
}  // namespace torch::comms::ctran
