#pragma once

#include <type_traits>

#include "ctran/kernels/collectives/elements.hpp"
#include "ctran/kernels/protocol/vector.hpp"

// Reductions of vectors of 16 bytes in rank order: step() for each rank from the first to the last,
// then end().
namespace torch::comms::ctran::kernels {

struct Sum {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    return static_cast<T>(left + right);
  }
};
// Sum of integers that are wider than their dtype and are divided afterwards.
struct WrappingSum {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
  }
};
struct Product {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    if constexpr (std::is_integral_v<T> && sizeof(T) < sizeof(uint32_t))
      return static_cast<T>(uint32_t{left} * uint32_t{right});  // their int product could overflow
    else
      return static_cast<T>(left * right);
  }
};
// Returns the left one of equal numbers, also of zeros; NaN if either is NaN.
struct Min {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    return right < left || right != right ? right : left;
  }
};
struct Max {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    return right > left || right != right ? right : left;
  }
};
struct BitAnd {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    return left & right;
  }
};
struct BitOr {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    return left | right;
  }
};
struct BitXor {
  template <class T>
  static TC_BOTH T combine(T left, T right) {
    return left ^ right;
  }
};

// kHot_: one of the most used reducers, compiled for speed; the others are compiled for size.
template <class Format, class Combine, bool kHot_ = false>
struct Reducer {
  using Element = Format;
  using Stored = typename Format::Stored;
  using Lane = typename Format::Lane;
  static constexpr bool kHot = kHot_, kMoves = false;
  static constexpr bool kDivides =
      std::is_same_v<Combine, Sum> || std::is_same_v<Combine, WrappingSum>;
  static constexpr int kLanes = static_cast<int>(16 / sizeof(Stored));

  Lane lanes[kLanes];

  TC_BOTH void step(const Vector16& v, bool first) {
    Stored stored[kLanes];
    memcpy(stored, &v, sizeof v);
    TC_UNROLL
    for (int i = 0; i < kLanes; ++i) {
      const Lane lane = Format::decode(stored[i]);
      lanes[i] = first ? lane : Combine::combine(lanes[i], lane);
    }
  }
  // Returns the result. Sums are divided by `divisor`; integers round toward zero.
  TC_BOTH Vector16 end(uint32_t divisor) const {
    Stored stored[kLanes];
    if (kDivides && divisor != 1) {
      TC_UNROLL
      for (int i = 0; i < kLanes; ++i)
        stored[i] = Format::encode(static_cast<Lane>(lanes[i] / static_cast<Lane>(divisor)));
    } else {
      TC_UNROLL
      for (int i = 0; i < kLanes; ++i) stored[i] = Format::encode(lanes[i]);
    }
    Vector16 v;
    memcpy(&v, stored, sizeof v);
    return v;
  }
};

// (a + bi)(c + di) = (ac - bd) + (ad + bc)i, every product rounded. The two parts of a number are
// adjacent.
template <class Format>
struct ComplexProduct {
  using Element = Format;
  using Stored = typename Format::Stored;
  using Lane = typename Format::Lane;
  static constexpr bool kHot = false, kMoves = false;
  static constexpr int kLanes = static_cast<int>(16 / sizeof(Stored));

  Lane lanes[kLanes];

  static TC_BOTH void multiply(Lane& real, Lane& imaginary, Lane c, Lane d) {
    const Lane a = real, b = imaginary;
    real = a * c + -(b * d);
    imaginary = a * d + b * c;
  }
  TC_BOTH void step(const Vector16& v, bool first) {
    Stored stored[kLanes];
    memcpy(stored, &v, sizeof v);
    TC_UNROLL
    for (int i = 0; i < kLanes; i += 2) {
      const Lane c = Format::decode(stored[i]), d = Format::decode(stored[i + 1]);
      if (first)
        lanes[i] = c, lanes[i + 1] = d;
      else
        multiply(lanes[i], lanes[i + 1], c, d);
    }
  }
  TC_BOTH Vector16 end(uint32_t) const {
    Stored stored[kLanes];
    TC_UNROLL
    for (int i = 0; i < kLanes; ++i) stored[i] = Format::encode(lanes[i]);
    Vector16 v;
    memcpy(&v, stored, sizeof v);
    return v;
  }
};

// Stands for the reducer in collectives that only move data.
struct Move {
  static constexpr bool kHot = true, kMoves = true;
};

}  // namespace torch::comms::ctran::kernels
