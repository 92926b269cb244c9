#pragma once

#include <cstdint>

#include "ctran/kernels/host/library.hpp"

// Which reducer does what a dtype and an operation ask for. Several ask for the same.
namespace torch::comms::ctran::kernels {

enum class ElementFormat : uint8_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kU64,
  kI64,
  kF16,
  kBF16,
  kF32,
  kF64,
  kE5m2,
  kE4m3fn,
  kE5m2fnuz,
  kE4m3fnuz,
  kE8m0,
};
enum class CombineOp : uint8_t {
  kMove,
  kSum,  // also averages of floats
  kProduct,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kAverage,  // of integers, which are added in wider ones
  kComplexProduct,
};
struct ReducerId {
  ElementFormat format;
  CombineOp op;
  bool operator==(const ReducerId&) const = default;
};

constexpr bool is_reduction(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter ||
         collective == Collective::kReduce;
}
constexpr bool is_rooted(Collective collective) {
  return collective == Collective::kBroadcast || collective == Collective::kReduce ||
         collective == Collective::kGather || collective == Collective::kScatter;
}

// Whether the arithmetic is defined: no bits of floating point, no order of complex numbers, no
// factor for bool.
bool is_defined(Dtype dtype, ReduceOpCode op) noexcept;

// Of what is defined.
ReducerId reducer_id_of(Dtype dtype, ReduceOpCode op) noexcept;

// Whether 8 bytes of its elements cannot be computed without the others: products of complex
// numbers of 16 bytes, and their multiples.
bool needs_wide_ll128(Dtype dtype, ReduceOpCode op) noexcept;

// Whether there are kernels of long lines for it: for what programs use most.
bool has_long_ll128(ReducerId cell) noexcept;

// NaN in all of 8 bytes, or 0 for a dtype without.
uint64_t nan_of(Dtype dtype) noexcept;

}  // namespace torch::comms::ctran::kernels
