#pragma once

#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ctran/reduction/elements.hpp"
#include "ctran/reduction/reduction.hpp"

// Inputs, and what their reductions must be: one element at a time, without a vector in sight.
namespace torch::comms::ctran_test {

using ctran::PremulFactor;
using ctran::ReduceOpCode;
using ctran::Reduction;
using ctran::SimdLevel;
using Memory = std::vector<std::byte>;

inline const std::vector<ReduceOpCode> kOps{
    ReduceOpCode::kSum,    ReduceOpCode::kProduct,   ReduceOpCode::kMin,
    ReduceOpCode::kMax,    ReduceOpCode::kBitAnd,    ReduceOpCode::kBitOr,
    ReduceOpCode::kBitXor, ReduceOpCode::kPremulSum, ReduceOpCode::kAverage};

inline uint64_t raw(const Memory& memory, size_t bytes, size_t index) {
  return raw(memory.data(), bytes, index);
}
inline double number(Dtype part, const Memory& memory, size_t index) {
  return number(part, memory.data(), index);
}
inline void set_raw(Memory& memory, size_t bytes, size_t index, uint64_t bits) {
  std::memcpy(memory.data() + index * bytes, &bits, bytes);
}
inline void set_number(Dtype part, Memory& memory, size_t index, double value) {
  const auto single = static_cast<float>(value);
  const uint64_t bits = part == Dtype::kFloat64   ? std::bit_cast<uint64_t>(value)
                        : part == Dtype::kFloat32 ? std::bit_cast<uint32_t>(single)
                                                  : encode(part, single);
  set_raw(memory, ctran::size_of(part), index, bits);
}

// Half of it random bits, half of it the numbers where something happens.
inline Memory sample(Dtype dtype, size_t count, uint32_t seed) {
  std::mt19937_64 random(seed);
  const Dtype part = part_of(dtype);
  const size_t bytes = ctran::size_of(part);
  Memory memory(count * ctran::size_of(dtype));
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const double special[] = {0.0,  -0.0,  1.0,          -1.0, 1.5,   -3.0,  100.0, 1e-7,
                            kInf, -kInf, std::nan(""), 6e4,  440.0, 2e-45, 1e-39, 3e38};
  const uint64_t whole[] = {0,
                            1,
                            2,
                            3,
                            ~uint64_t{0},
                            ~uint64_t{0} - 4,
                            uint64_t{1} << (8 * bytes - 1),
                            (uint64_t{1} << (8 * bytes - 1)) - 1};
  for (size_t i = 0; i < memory.size() / bytes; ++i) {
    const uint64_t drawn = random();
    if (dtype == Dtype::kBool)
      set_raw(memory, 1, i, drawn % 2);
    else if (drawn % 2 == 0)
      set_raw(memory, bytes, i, random());
    else if (is_float(part))
      set_number(part, memory, i, special[drawn / 2 % std::size(special)]);
    else
      set_raw(memory, bytes, i, whole[drawn / 2 % std::size(whole)]);
  }
  return memory;
}

template <class T>
T combine_numbers(ReduceOpCode op, T left, T right) {
  if (op == ReduceOpCode::kProduct) return left * right;
  if (op == ReduceOpCode::kMin || op == ReduceOpCode::kMax) {
    if (std::isnan(left)) return left;
    if (std::isnan(right)) return right;
    return op == ReduceOpCode::kMin ? std::min(left, right)
                                    : std::max(left, right);  // left if equal
  }
  return left + right;
}

// A complex number, or a real one with nothing in the second part.
template <class T>
struct Pair {
  T real{}, imaginary{};
};
template <class T>
Pair<T> multiply(Pair<T> a, Pair<T> b) {
  const volatile T ac = a.real * b.real, bd = a.imaginary * b.imaginary;  // each one rounded
  const volatile T ad = a.real * b.imaginary, bc = a.imaginary * b.real;
  return {ac - bd, ad + bc};
}

// T: double or float, what is computed in.
template <class T>
Memory reference_numbers(Dtype dtype, ReduceOpCode op, const std::vector<Memory>& operands,
                         uint32_t ranks) {
  const Dtype part = part_of(dtype);
  const size_t step = is_complex(dtype) ? 2 : 1;
  Memory result(operands[0].size());
  for (size_t i = 0; i < result.size() / ctran::size_of(part); i += step) {
    const auto at = [&](const Memory& memory) {
      return Pair<T>{static_cast<T>(number(part, memory, i)),
                     static_cast<T>(step == 2 ? number(part, memory, i + 1) : 0)};
    };
    Pair<T> total = at(operands[0]);
    for (size_t k = 1; k < operands.size(); ++k) {
      const Pair<T> next = at(operands[k]);
      total = step == 2 && op == ReduceOpCode::kProduct
                  ? multiply(total, next)
                  : Pair<T>{combine_numbers(op, total.real, next.real),
                            combine_numbers(op, total.imaginary, next.imaginary)};
    }
    if (op == ReduceOpCode::kAverage)
      total = {total.real / static_cast<T>(ranks), total.imaginary / static_cast<T>(ranks)};
    set_number(part, result, i, total.real);
    if (step == 2) set_number(part, result, i + 1, total.imaginary);
  }
  return result;
}

// The bits as a number, sign extended.
inline uint64_t whole(Dtype dtype, const Memory& memory, size_t index) {
  const size_t bytes = ctran::size_of(dtype);
  const uint64_t bits = raw(memory, bytes, index);
  const auto spare = static_cast<int>(64 - 8 * bytes);
  return is_signed(dtype) ? static_cast<uint64_t>(static_cast<int64_t>(bits << spare) >> spare)
                          : bits;
}

inline uint64_t combine_whole(Dtype dtype, ReduceOpCode op, uint64_t left, uint64_t right) {
  const bool less =
      is_signed(dtype) ? static_cast<int64_t>(left) < static_cast<int64_t>(right) : left < right;
  const bool truth = dtype == Dtype::kBool;
  switch (op) {
    case ReduceOpCode::kProduct:
      return left * right;
    case ReduceOpCode::kMin:
      return less ? left : right;
    case ReduceOpCode::kMax:
      return less ? right : left;
    case ReduceOpCode::kBitAnd:
      return left & right;
    case ReduceOpCode::kBitOr:
      return left | right;
    case ReduceOpCode::kBitXor:
      return left ^ right;
    case ReduceOpCode::kAverage:
      return truth ? left & right : left + right;
    default:
      return truth ? left | right : left + right;
  }
}

inline Memory reference_whole(Dtype dtype, ReduceOpCode op, const std::vector<Memory>& operands,
                              uint32_t ranks) {
  const size_t bytes = ctran::size_of(dtype);
  Memory result(operands[0].size());
  for (size_t i = 0; i < result.size() / bytes; ++i) {
    uint64_t total = whole(dtype, operands[0], i);
    for (size_t k = 1; k < operands.size(); ++k)
      total = combine_whole(dtype, op, total, whole(dtype, operands[k], i));
    if (op == ReduceOpCode::kAverage && dtype != Dtype::kBool)
      total = is_signed(dtype) ? static_cast<uint64_t>(static_cast<int64_t>(total) / ranks)
                               : total / ranks;
    set_raw(result, bytes, i, total);
  }
  return result;
}

// What combine_all() gives; with two operands and ranks == 1, what combine() gives.
inline Memory reference(Dtype dtype, ReduceOpCode op, const std::vector<Memory>& operands,
                        uint32_t ranks) {
  if (!is_float(dtype)) return reference_whole(dtype, op, operands, ranks);
  return part_of(dtype) == Dtype::kFloat64 ? reference_numbers<double>(dtype, op, operands, ranks)
                                           : reference_numbers<float>(dtype, op, operands, ranks);
}

// x * factor, as if it were a product of two operands.
inline Memory reference_scaled(Dtype dtype, Dtype into, const Memory& from,
                               const PremulFactor& factor) {
  Memory result(from.size() / ctran::size_of(dtype) * ctran::size_of(into));
  const Dtype part = part_of(dtype), target = part_of(into);
  const auto scale = [&]<class T>(T) {
    const Pair<T> by{static_cast<T>(factor.real), static_cast<T>(factor.imaginary)};
    const size_t step = is_complex(dtype) ? 2 : 1;
    for (size_t i = 0; i < from.size() / ctran::size_of(part); i += step) {
      Pair<T> x{static_cast<T>(number(part, from, i)), T{}};
      if (step == 2) x.imaginary = static_cast<T>(number(part, from, i + 1));
      x = step == 2 ? multiply(x, by) : Pair<T>{x.real * by.real, T{}};
      set_number(target, result, i, x.real);
      if (step == 2) set_number(target, result, i + 1, x.imaginary);
    }
  };
  if (!is_float(dtype)) {
    for (size_t i = 0; i < from.size() / ctran::size_of(dtype); ++i)
      set_raw(result, ctran::size_of(dtype), i, whole(dtype, from, i) * factor.integer);
  } else if (part == Dtype::kFloat64) {
    scale(double{});
  } else {
    scale(float{});
  }
  return result;
}

// The first element that differs, or -1. NaN is NaN.
inline ptrdiff_t first_difference(Dtype dtype, const std::byte* got, const Memory& want,
                                  size_t count) {
  const Dtype part = part_of(dtype);
  const size_t bytes = ctran::size_of(part), parts = count * ctran::size_of(dtype) / bytes;
  for (size_t i = 0; i < parts; ++i) {
    if (std::memcmp(got + i * bytes, want.data() + i * bytes, bytes) == 0) continue;
    if (!is_nan(part, got + i * bytes) || !is_nan(part, want.data() + i * bytes))
      return static_cast<ptrdiff_t>(i);
  }
  return -1;
}

inline std::string label(Dtype dtype, ReduceOpCode op, SimdLevel level) {
  return std::string(name_of(op)) + " of " + std::string(name_of(dtype)) + ", " +
         std::string(name_of(level));
}

}  // namespace torch::comms::ctran_test
