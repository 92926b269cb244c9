#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>
#include <torchcomms/types.hpp>

#include "backends/gloo/order_keys.hpp"

namespace torch::comms::gloo {

// Describes how a reduction is computed with the dtypes and operations that Gloo has. Gloo adds,
// multiplies and compares only half, bfloat16, float, double, int8, uint8, int32 and int64, and
// applies bitwise operations to the integers among them. MIN and MAX of floating-point numbers use
// order keys, because Gloo's result with a NaN depends on the NaN's rank.
//
// The steps, in order: read the elements' memory as `view`; convert to `compute`, if it differs
// from `view`; multiply by the factor of PREMUL_SUM; convert to `keys`; combine over the ranks with
// `combine`; convert back from keys; divide by the number of ranks; convert back to `view`.
struct ReductionPlan {
  at::ScalarType view;
  at::ScalarType compute;
  RedOpType combine;  // SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR
  // Whether the result is divided by the number of ranks. Integers are rounded toward zero.
  enum class DivideMode : uint8_t { kNo, kYes, kUnsigned64 } divide = DivideMode::kNo;
  OrderKeys keys = OrderKeys::kNone;
  bool premultiply = false;
  bool is_complex = false;
  // Gloo cannot multiply complex numbers. Every rank therefore gathers all inputs and multiplies
  // them in rank order; `compute` is complex in this case.
  bool gathers_inputs = false;

  bool has_conversion() const { return view != compute; }
  // Returns: true if the plan only combines the elements.
  bool is_plain() const {
    return !has_conversion() && divide == DivideMode::kNo && keys == OrderKeys::kNone &&
           !premultiply && !gathers_inputs;
  }
};

// Where the elements are combined. Gloo rounds half types after every step; the local loop
// accumulates in float.
enum class CombineEngine : uint8_t { kGloo, kLocal };

// Returns: the plan for `count` elements of `dtype` on `size` ranks, which is equal on every rank.
//
// half and bfloat16 are converted to float, and rounded once, in three cases. First, rounding is
// inexact anyway (more than 2 ranks) and the conversion is cheap (up to 64 KiB). Second,
// intermediate values of half could overflow (AVG, PREMUL_SUM). Third, Gloo's MIN and MAX need
// keys. An average of integers is exact up to 32 bits; int64 and uint64 wrap as their sum does.
//
// Throws: CommError(kInvalidArgument), without context, naming op and dtype, if the reduction is
// not defined for the dtype.
ReductionPlan plan_reduction(at::ScalarType dtype, RedOpType op, int size, int64_t count,
                             CombineEngine arithmetic);

}  // namespace torch::comms::gloo
