#pragma once

#include <ATen/core/Tensor.h>

namespace torch::comms::ctran {

// Returns: a tensor of zeros in memory that other processes of this host can map. The tensor owns
// the memory.
// Throws: CommError(kResourceExhausted, kSystem), without context.
at::Tensor make_shared_tensor(at::IntArrayRef sizes, at::ScalarType dtype);

}  // namespace torch::comms::ctran
