#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

// Order keys: signed integers that compare in the same order as other numbers do. Gloo computes MIN
// and MAX of the keys where it would order the numbers wrongly.
// Threads: any.
namespace torch::comms::gloo {

enum class OrderKeys : uint8_t {
  kNone,
  // Keys of unsigned integers: the sign bit is flipped.
  kUnsigned,
  // Keys of float or double. Gloo's comparison of floating-point numbers keeps or drops a NaN
  // depending on the rank that has the NaN. The key of a NaN is above all other keys for MAX, and
  // below all other keys for MIN.
  kFloat,
};

// Converts the elements of `numbers`, of 4 or 8 bytes, to their keys, in the same memory. `op` is
// MIN or MAX.
// Returns: a view of that memory as int32 or int64.
at::Tensor to_order_keys(const at::Tensor& numbers, OrderKeys kind, RedOpType op);

// Converts keys back to numbers, in the same memory.
// Returns: a view of that memory as `dtype`.
at::Tensor from_order_keys(const at::Tensor& keys, OrderKeys kind, at::ScalarType dtype);

}  // namespace torch::comms::gloo
