#pragma once

#include <cstdint>

#include "ctran/kernels/host/library.hpp"

// Maps a dtype and an operation to the reducer that computes it. Several pairs share a reducer.
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
  kSum,  // also PREMUL_SUM, and averages of floats and complex numbers
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

// Returns whether the arithmetic is defined. Undefined are bitwise operations on floats and complex
// numbers, MIN and MAX of complex numbers, PREMUL_SUM of bool, and unknown values of `dtype` and
// `op`.
bool is_defined(Dtype dtype, ReduceOpCode op) noexcept;

// Returns the reducer of a reduction for which is_defined() is true.
ReducerId reducer_id_of(Dtype dtype, ReduceOpCode op) noexcept;

// Returns whether 8 bytes of an element cannot be computed without the other 8. This holds for
// products of complex numbers of 16 bytes, and for their multiples by a factor.
bool needs_wide_ll128(Dtype dtype, ReduceOpCode op) noexcept;

// Returns whether long LL128 has kernels for this reducer. It has kernels for the most used ones:
// sums of float16, bfloat16 and float32.
bool has_long_ll128(ReducerId id) noexcept;

// Returns 8 bytes filled with NaN of the dtype, or of the parts of its complex numbers. 0: the
// dtype has no NaN.
uint64_t nan_of(Dtype dtype) noexcept;

}  // namespace torch::comms::ctran::kernels
