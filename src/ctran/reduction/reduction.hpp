#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ctran/reduction/dtype.hpp"
#include "ctran/reduction/simd_level.hpp"

namespace torch::comms::ctran {

struct LoopTable;
struct LoopWork;

// What PREMUL_SUM multiplies by: a value of the accumulator. Real numbers take `real`, complex ones
// both parts, integers `integer` (of signed ones the two's complement).
struct PremulFactor {
  double real = 1, imaginary = 0;
  uint64_t integer = 1;
};

// One reduction of one dtype on this machine's instructions: looked up once, then called for every
// chunk. A few words, to be copied.
//
// What is computed
// - Floating point below 32 bits is computed in float. Where it is rounded to the dtype, to nearest
//   with ties to even, is said at each method: chained combine() rounds at every step.
// - Integers wrap. MIN and MAX give NaN if an operand is NaN, and the left one of equal operands
//   (of -0 and 0). bool: SUM, MAX and BOR are "any", AVG, PRODUCT, MIN and BAND are "all".
// - AVG divides by the number of ranks at the end, integers toward zero. Up to 32 bits it is exact
//   as long as the accumulator holds the sum (of 16 bits: 32768 ranks); 64 bits wrap as their sum.
// - Out of range: infinity in float16, bfloat16 and float8_e5m2, NaN in the fnuz formats and e8m0,
//   and in float8_e4m3fn the largest number, of an infinity as well: torch's conversions of 2.15
//   (earlier ones make NaN of e4m3fn). e8m0 drops the sign.
// - The same operands in the same order give the same bits at every level, whatever the alignment,
//   the count, and the cut into calls. (NaN is NaN; which one is not promised.)
//
// Memory: any alignment, any count, 0 included. `into` may be one of the operands, exactly; overlap
// otherwise is not allowed. Large results go past the caches and are fenced before the call
// returns, so that a flag stored after it is seen after them. Any thread; nothing is allocated.
//
// Our own wrong calls throw kInternal: no operands or too many, no ranks, scaling without a factor.
class Reduction {
 public:
  static constexpr size_t kMostOperands = 64;

  // Whether torch defines it: no bits of floating point, no order of complex numbers, no factor for
  // bool.
  static bool is_defined(Dtype dtype, ReduceOpCode op) noexcept;

  // Throws CommError(kInvalidArgument), without context, where it is not defined, and
  // CommError(kUnsupported) for a level that this machine lacks.
  Reduction(Dtype dtype, ReduceOpCode op, SimdLevel level = best_simd_level());

  Dtype dtype() const noexcept { return dtype_; }
  // What partial results are exact enough in: float for 8 and 16 bits of floating point (complex64
  // for complex32), for SUM, PRODUCT, PREMUL_SUM and AVG; int32 or int64 for AVG of narrower
  // integers. The dtype itself elsewhere.
  Dtype accumulator() const noexcept { return accumulator_; }

  // In the dtype ------------------------------------------------------------------------------

  // into = left op right, rounded. AVG and PREMUL_SUM add, so that integers of an AVG wrap here.
  void combine(void* into, const void* left, const void* right, size_t count) const noexcept;

  // into = operands[0] op operands[1] op ..., from left to right, each read once. Accumulates in
  // accumulator() and rounds once. 1 to kMostOperands of them. AVG divides by `ranks`.
  void combine_all(void* into, std::span<const void* const> operands, size_t count,
                   uint32_t ranks) const;

  // into = from * factor, rounded. For PREMUL_SUM.
  void scale(void* into, const void* from, size_t count, const PremulFactor& factor) const;

  // By way of the accumulator: a chain that rounds once --------------------------------------
  // widen() each input, combine_wide() along the way, finish() the result.

  // `into` has the accumulator's elements, `from` the dtype's; the second multiplies, and is for
  // PREMUL_SUM. `into` may be `from` only if accumulator() == dtype().
  void widen(void* into, const void* from, size_t count) const;
  void widen_scaled(void* into, const void* from, size_t count, const PremulFactor& factor) const;

  // All of the accumulator's elements.
  void combine_wide(void* into, const void* left, const void* right, size_t count) const noexcept;

  // As combine_all(), but `operands` have the accumulator's elements. One operand is allowed: then
  // this only divides and rounds. `into` may be an operand only if accumulator() == dtype().
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
  // Of an element, as the loops count them: 2 of complex numbers, the bytes where bits are
  // combined.
  uint8_t parts_ = 1;
  uint8_t part_bytes_ = 0, wide_part_bytes_ = 0;
  Loop combine_ = nullptr, combine_all_ = nullptr, combine_wide_ = nullptr, finish_ = nullptr;
  Loop widen_ = nullptr, widen_scaled_ = nullptr, scale_ = nullptr;
};

}  // namespace torch::comms::ctran
