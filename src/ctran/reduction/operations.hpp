#pragma once

#include <limits>

#include "ctran/reduction/formats.hpp"
#include "ctran/reduction/loop_table.hpp"

// Operations on vectors: combine() for two operands, and finish() for the result.
namespace torch::comms::ctran {
namespace {

struct VectorSum {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    using T = ElementOf<V>;
    if constexpr (std::is_same_v<T, int64_t>)  // wraps
      return as<V>(as<Register<uint64_t>>(left) + as<Register<uint64_t>>(right));
    else if constexpr (std::is_same_v<T, int32_t>)
      return as<V>(as<Bits>(left) + as<Bits>(right));
    else
      return left + right;
  }
};

struct VectorProduct {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    return left * right;
  }
};

struct VectorBitAnd {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    return left & right;
  }
};
struct VectorBitOr {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    return left | right;
  }
};
struct VectorBitXor {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    return left ^ right;
  }
};

// VectorMin and VectorMax return the left operand if both are equal (also for -0 and 0), and NaN if
// either is NaN.
template <class V>
TC_INLINE auto right_is_nan(V right) {
  return right != right;
}
struct VectorMin {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    if constexpr (std::is_floating_point_v<ElementOf<V>>)
      return (right < left) | right_is_nan(right) ? right : left;
    else
      return right < left ? right : left;
  }
};
struct VectorMax {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    if constexpr (std::is_floating_point_v<ElementOf<V>>)
      return (right > left) | right_is_nan(right) ? right : left;
    else
      return right > left ? right : left;
  }
};

// Computes (a + bi)(c + di) = (ac - bd) + (ad + bc)i and rounds every product. Real and imaginary
// parts are interleaved.
struct VectorComplexProduct {
  template <class V>
  TC_INLINE static V combine(V left, V right) {
    constexpr auto kLanes = std::make_index_sequence<kLanesOf<V>>{};
    const V straight = rounded(evens(left, kLanes) * right);
    const V crossed = rounded(odds(left, kLanes) * swapped(right, kLanes));
    return straight + flip_evens(crossed, kLanes);
  }

 private:
  template <class V, size_t... kLane>
  TC_INLINE static V flip_evens(V v, std::index_sequence<kLane...>) {
    using U = std::conditional_t<sizeof(v[0]) == 8, uint64_t, uint32_t>;
    constexpr U kTop = U{1} << (8 * sizeof(U) - 1);
    return as<V>(as<LanesOf<U, V>>(v) ^ LanesOf<U, V>{(kLane % 2 == 0 ? kTop : 0)...});
  }
};

struct VectorIdentity {
  template <class V>
  TC_INLINE static V finish(V v, const LoopWork&) {
    return v;
  }
};

// Returns integer quotients, computed in T and truncated. They are exact while the numbers and the
// divisor are below 2^24 for float and 2^53 for double: the number nearest to a quotient is then
// never beyond the next integer.
template <class T, class V>
TC_INLINE V truncated_quotients(V v, uint32_t divisor) {
  using Numbers = LanesOf<T, V>;
  return __builtin_convertvector(
      __builtin_convertvector(v, Numbers) / splat<Numbers>(static_cast<T>(divisor)), V);
}

// Divides sums of F by the divisor; integers round toward zero. kSmall: the values are sums of up
// to 64 numbers of up to 16 bits.
template <class F, bool kSmall = false>
struct VectorDivide {
  template <class V>
  TC_INLINE static V finish(V v, const LoopWork& work) {
    using T = ElementOf<V>;
    if (work.divisor == 1) return v;
    if constexpr (std::is_floating_point_v<T> || sizeof(typename F::Stored) == sizeof(V))
      return v / splat<V>(static_cast<T>(work.divisor));
    else if constexpr (kSmall)
      return truncated_quotients<float>(v, work.divisor);
    else if constexpr (sizeof(T) == sizeof(double))
      return truncated_quotients<double>(v, work.divisor);
    else
      return by_halves(v, work.divisor);
  }

 private:
  template <class V>
  TC_INLINE static V by_halves(V v, uint32_t divisor) {
    Vector<int32_t, kLanesFor<double>> halves[2];
    __builtin_memcpy(halves, &v, sizeof v);
    for (auto& half : halves) half = truncated_quotients<double>(half, divisor);
    __builtin_memcpy(&v, halves, sizeof v);
    return v;
  }
};

struct VectorScale {
  template <class V>
  TC_INLINE static V finish(V v, const LoopWork& work) {
    using T = ElementOf<V>;
    if constexpr (std::is_floating_point_v<T>)
      return v * splat<V>(static_cast<T>(work.factor[0]));
    else
      return v * splat<V>(static_cast<T>(work.integer));
  }
};

struct VectorComplexScale {
  template <class V>
  TC_INLINE static V finish(V v, const LoopWork& work) {
    return VectorComplexProduct::combine(v,
                                         factor<V>(work, std::make_index_sequence<kLanesOf<V>>{}));
  }

 private:
  template <class V, size_t... kLane>
  TC_INLINE static V factor(const LoopWork& work, std::index_sequence<kLane...>) {
    return V{static_cast<ElementOf<V>>(work.factor[kLane % 2])...};
  }
};

}  // namespace
}  // namespace torch::comms::ctran
