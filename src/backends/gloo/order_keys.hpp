#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

// Order keys: signed integers that compare as other numbers do. Gloo computes MIN and MAX of the
// keys where it orders the numbers wrongly. Any thread.
namespace torch::comms::gloo {

enum class OrderKeys : uint8_t {
  kNone,
  // Keys of unsigned integers, whose sign bit is flipped.
  kUnsigned,
  // Keys of float or double. Gloo's comparison of those keeps or drops a NaN depending on the rank
  // that has it. The key of a NaN is above all others for MAX, and below all others for MIN.
  kFloat,
};

// Turns the elements of `numbers`, of 4 or 8 bytes, into their keys, in the same memory. `op` is
// MIN or MAX. Returns: a view of that memory as int32 or int64.
at::Tensor to_order_keys(const at::Tensor& numbers, OrderKeys kind, RedOpType op);

// Turns keys back into numbers, in the same memory. Returns: a view of that memory as `dtype`.
at::Tensor from_order_keys(const at::Tensor& keys, OrderKeys kind, at::ScalarType dtype);

}  // namespace torch::comms::gloo
