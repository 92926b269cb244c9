#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::comms::ctran {

// A tensor of zeros in memory that other processes of this host can map. It lives on its own.
// Throws CommError(kResourceExhausted, kSystem), without context.
at::Tensor shared_tensor(at::IntArrayRef sizes, at::ScalarType dtype);

// Dtype and shape as the text that a window's members tell each other, and back. The first throws
// CommError(kInvalidArgument) for more than 16 dimensions, the second CommError(kMismatch).
std::string note_of(const at::Tensor& tensor);
std::pair<at::ScalarType, std::vector<int64_t>> read_note(std::string_view note);

}  // namespace torch::comms::ctran
