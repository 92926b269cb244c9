#pragma once

#include <cstdint>

#include <c10/core/ScalarType.h>
#include <torchcomms/types.hpp>

#include "backends/gloo/order_keys.hpp"

namespace torch::comms::gloo {

// How a reduction is computed where Gloo itself adds, multiplies and compares only half, bfloat16,
// float, double, int8, uint8, int32 and int64, and combines bits of the integers among them. MIN
// and MAX of floating point are not left to Gloo, whose result with a NaN depends on the NaN's
// rank.
//
// In order: the elements' memory is read as `view`; converted to `compute`, if that is another
// dtype; multiplied by the factor of PREMUL_SUM; turned into `keys`; combined over the ranks with
// `combine`; turned back; divided by the number of ranks; converted back.
struct ReductionPlan {
  at::ScalarType view;
  at::ScalarType compute;
  RedOpType combine;  // SUM, PRODUCT, MIN, MAX, BAND, BOR or BXOR
  // By the number of ranks; integers toward zero.
  enum class DivideMode : uint8_t { kNo, kYes, kUnsigned64 } divide = DivideMode::kNo;
  OrderKeys keys = OrderKeys::kNone;
  bool premultiply = false;
  bool is_complex = false;
  // Complex products: no way to do it with Gloo, so every rank gathers all inputs and multiplies
  // them in rank order. `compute` is complex then.
  bool gathers_inputs = false;

  bool has_conversion() const { return view != compute; }
  // Nothing to do besides combining.
  bool is_plain() const {
    return !has_conversion() && divide == DivideMode::kNo && keys == OrderKeys::kNone &&
           !premultiply && !gathers_inputs;
  }
};

// Where the elements are combined. Gloo rounds half types after every step; the own loop adds up in
// float.
enum class CombineEngine : uint8_t { kGloo, kLocal };

// The plan for `count` elements of `dtype` on `size` ranks; the same on every rank. half and
// bfloat16 are converted to float, and rounded once, where rounding is not exact anyway (over 2
// ranks) and it costs little (up to 64 KiB), where half could overflow on the way (AVG,
// PREMUL_SUM), and for the keys of Gloo's MIN and MAX. An average of integers is exact up to 32
// bits; int64 and uint64 wrap as their sum does. Throws CommError(kInvalidArgument), without
// context, naming op and dtype where the reduction is not defined.
ReductionPlan plan_reduction(at::ScalarType dtype, RedOpType op, int size, int64_t count,
                             CombineEngine arithmetic);

}  // namespace torch::comms::gloo
