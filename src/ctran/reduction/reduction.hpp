#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ctran/reduction/dtype.hpp"
#include "ctran/reduction/simd_level.hpp"

namespace torch::comms::ctran {

struct LoopTable;
struct LoopWork;

// The factor of PREMUL_SUM, in the accumulator's dtype. Real numbers use `real`, complex numbers
// both parts, integers `integer` (signed ones in two's complement).
struct PremulFactor {
  double real = 1, imaginary = 0;
  uint64_t integer = 1;
};

// One reduction of one dtype with one instruction set. It is looked up once and then called for
// every chunk. It is a few words and cheap to copy.
//
// Results
// - Floating point below 32 bits is computed in float. Each method says where it rounds to the
//   dtype (to nearest, ties to even): chained combine() rounds at every step.
// - Integers wrap. MIN and MAX give NaN if an operand is NaN, and the left one of equal operands
//   (of -0 and 0). For bool, SUM, MAX and BOR mean "any"; AVG, PRODUCT, MIN and BAND mean "all".
// - AVG divides by the number of ranks at the end, integers toward zero. Up to 32 bits it is exact
//   as long as the accumulator holds the sum (for 16 bits: 32768 ranks). Sums of 64 bits wrap.
// - Overflow gives infinity in float16, bfloat16 and float8_e5m2, and NaN in the fnuz formats and
//   e8m0. In float8_e4m3fn overflow and infinity give the largest number, like conversions in torch
//   2.15 (earlier ones give NaN). e8m0 drops the sign.
// - The same operands in the same order give the same bits at every level, whatever the alignment,
//   the count, and the split into calls. (NaN stays NaN, but its bits are not specified.)
//
// Memory: any alignment and any count, including 0. `into` may be exactly one of the operands; any
// other overlap is not allowed. Large results are stored past the caches and fenced before the call
// returns, so a flag stored later is visible after them. Nothing is allocated.
// Throws: CommError(kInternal) for invalid calls of our own code: no operands or too many, no
// ranks, scaling without a factor.
// Threads: any.
class Reduction {
 public:
  static constexpr size_t kMostOperands = 64;

  // Returns: whether torch defines the reduction. Undefined are bit operations on floating point,
  // MIN and MAX of complex numbers, and factors for bool.
  static bool is_defined(Dtype dtype, ReduceOpCode op) noexcept;

  // Throws: CommError(kInvalidArgument), without context, if the reduction is not defined;
  // CommError(kUnsupported) if this machine lacks the level.
  Reduction(Dtype dtype, ReduceOpCode op, SimdLevel level = best_simd_level());

  Dtype dtype() const noexcept { return dtype_; }
  // Returns: the dtype for partial results. For SUM, PRODUCT, PREMUL_SUM and AVG it is float for
  // floating point of 8 and 16 bits, and complex64 for complex32. For AVG of narrower integers it
  // is int32 or int64. Otherwise it is the dtype itself.
  Dtype accumulator() const noexcept { return accumulator_; }

  // In the dtype ------------------------------------------------------------------------------

  // into = left op right, rounded. AVG and PREMUL_SUM only add here, so an AVG of integers may
  // wrap.
  void combine(void* into, const void* left, const void* right, size_t count) const noexcept;

  // into = operands[0] op operands[1] op ..., from left to right. Reads each operand once,
  // accumulates in accumulator() and rounds once. AVG divides by `ranks`. There must be 1 to
  // kMostOperands operands.
  void combine_all(void* into, std::span<const void* const> operands, size_t count,
                   uint32_t ranks) const;

  // into = from * factor, rounded. For PREMUL_SUM.
  void scale(void* into, const void* from, size_t count, const PremulFactor& factor) const;

  // In the accumulator: a chain that rounds once ----------------------------------------------
  // widen() each input, combine_wide() partial results, finish() the result.

  // Convert to the accumulator's dtype; widen_scaled() also multiplies, for PREMUL_SUM. `into` may
  // be `from` only if accumulator() == dtype().
  void widen(void* into, const void* from, size_t count) const;
  void widen_scaled(void* into, const void* from, size_t count, const PremulFactor& factor) const;

  // into = left op right; all three have the accumulator's dtype.
  void combine_wide(void* into, const void* left, const void* right, size_t count) const noexcept;

  // Combines operands of the accumulator's dtype, divides (AVG), and rounds to the dtype. With one
  // operand it only divides and rounds. `into` may be an operand only if accumulator() == dtype().
  void finish(void* into, std::span<const void* const> operands, size_t count,
              uint32_t ranks) const;

 private:
  using Loop = void (*)(const LoopWork&);

  void reduce(Loop loop, void* into, std::span<const void* const> operands, size_t count,
              uint32_t ranks) const;
  void convert(Loop loop, void* into, const void* from, size_t count, size_t written_bytes,
               const PremulFactor& factor) const;

  Dtype dtype_, accumulator_;
  bool has_divisor_ = false;
  // Parts of an element as the loops count them: 2 for complex numbers, the number of bytes for bit
  // operations, else 1.
  uint8_t parts_ = 1;
  uint8_t part_bytes_ = 0, wide_part_bytes_ = 0;
  Loop combine_ = nullptr, combine_all_ = nullptr, combine_wide_ = nullptr, finish_ = nullptr;
  Loop widen_ = nullptr, widen_scaled_ = nullptr, scale_ = nullptr;
};

}  // namespace torch::comms::ctran
