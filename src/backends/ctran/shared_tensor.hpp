#pragma once

#include <ATen/core/Tensor.h>

namespace torch::comms::ctran {

// A tensor of zeros in memory that other processes of this host can map. It lives on its own.
// Throws CommError(kResourceExhausted, kSystem), without context.
at::Tensor make_shared_tensor(at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace torch::comms::ctran
