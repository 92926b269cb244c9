#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "ctran/reduction/dtype.hpp"
#include "ctran/reduction/small_float.hpp"

// Every dtype, and what an element of one is.
namespace torch::comms::ctran_test {

using ctran::Dtype;

inline constexpr Dtype kDtypes[] = {
    Dtype::kUInt8,          Dtype::kInt8,       Dtype::kInt16,        Dtype::kInt32,
    Dtype::kInt64,          Dtype::kFloat16,    Dtype::kFloat32,      Dtype::kFloat64,
    Dtype::kComplex32,      Dtype::kComplex64,  Dtype::kComplex128,   Dtype::kBool,
    Dtype::kBFloat16,       Dtype::kFloat8E5m2, Dtype::kFloat8E4m3fn, Dtype::kFloat8E5m2fnuz,
    Dtype::kFloat8E4m3fnuz, Dtype::kUInt16,     Dtype::kUInt32,       Dtype::kUInt64,
    Dtype::kFloat8E8m0fnu};

inline bool is_complex(Dtype dtype) {
  return dtype == Dtype::kComplex32 || dtype == Dtype::kComplex64 || dtype == Dtype::kComplex128;
}
inline Dtype part_of(Dtype dtype) {
  if (dtype == Dtype::kComplex32) return Dtype::kFloat16;
  if (dtype == Dtype::kComplex64) return Dtype::kFloat32;
  return dtype == Dtype::kComplex128 ? Dtype::kFloat64 : dtype;
}
inline bool is_float(Dtype dtype) {
  const Dtype part = part_of(dtype);
  return part == Dtype::kFloat32 || part == Dtype::kFloat64 || is_small(part);
}
inline bool is_signed(Dtype dtype) {
  return dtype == Dtype::kInt8 || dtype == Dtype::kInt16 || dtype == Dtype::kInt32 ||
         dtype == Dtype::kInt64;
}

// Element `index` of memory of a real dtype, as a number that holds it exactly.
inline uint64_t raw(const std::byte* memory, size_t bytes, size_t index) {
  uint64_t bits = 0;
  std::memcpy(&bits, memory + index * bytes, bytes);
  return bits;
}
inline double number(Dtype part, const std::byte* memory, size_t index) {
  const uint64_t bits = raw(memory, ctran::size_of(part), index);
  if (part == Dtype::kFloat64) return std::bit_cast<double>(bits);
  if (part == Dtype::kFloat32) return std::bit_cast<float>(static_cast<uint32_t>(bits));
  return decode(part, static_cast<uint32_t>(bits));
}

inline bool is_nan(Dtype dtype, const std::byte* element) {
  if (!is_float(dtype)) return false;
  const Dtype part = part_of(dtype);
  return std::isnan(number(part, element, 0)) ||
         (is_complex(dtype) && std::isnan(number(part, element, 1)));
}

// The kinds of NaN that a real dtype has: quiet and signalling ones, of either sign.
inline std::vector<uint64_t> nans_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFloat64:
      return {0x7ff8000000000000, 0xfff8000000000000, 0x7ff0000000000001,
              0xfff0000000000001, 0x7fffffffffffffff, 0xffffffffffffffff};
    case Dtype::kFloat32:
      return {0x7fc00000, 0xffc00000, 0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff};
    case Dtype::kFloat16:
      return {0x7e00, 0xfe00, 0x7c01, 0xfc01, 0x7fff, 0xffff};
    case Dtype::kBFloat16:
      return {0x7fc0, 0xffc0, 0x7f81, 0xff81, 0x7fff, 0xffff};
    case Dtype::kFloat8E5m2:
      return {0x7e, 0xfe, 0x7d, 0xfd, 0x7f, 0xff};
    case Dtype::kFloat8E4m3fn:
      return {0x7f, 0xff};
    case Dtype::kFloat8E5m2fnuz:
    case Dtype::kFloat8E4m3fnuz:
      return {0x80};
    case Dtype::kFloat8E8m0fnu:
      return {0xff};
    default:
      return {};
  }
}

}  // namespace torch::comms::ctran_test
