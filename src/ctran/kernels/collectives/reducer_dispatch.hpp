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

// Whether the arithmetic is defined. Undefined are bitwise operations on floats, MIN and MAX of
// complex numbers, and factors of bool.
bool is_defined(Dtype dtype, ReduceOpCode op) noexcept;

// Returns the reducer of a defined reduction.
ReducerId reducer_id_of(Dtype dtype, ReduceOpCode op) noexcept;

// Whether 8 bytes of an element cannot be computed without the other 8. This holds for products of
// complex numbers of 16 bytes, and for their multiples by a factor.
bool needs_wide_ll128(Dtype dtype, ReduceOpCode op) noexcept;

// Whether there are kernels of long LL128 for it, which exist for the most used reducers.
bool has_long_ll128(ReducerId cell) noexcept;

// Returns 8 bytes filled with NaN of the dtype; 0 if the dtype has no NaN.
uint64_t nan_of(Dtype dtype) noexcept;

}  // namespace torch::comms::ctran::kernels
