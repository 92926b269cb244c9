#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

// What windows of tensors have in common, wherever their memory is. What throws CommError does so
// without context.
namespace torch::comms {

// Dtype and shape as the text that a window's members tell each other, and back. The first throws
// CommError(kInvalidArgument) for more than 16 dimensions, the second CommError(kSizeMismatch).
TC_API std::string encode_tensor_meta(const at::Tensor& tensor);
TC_API std::pair<at::ScalarType, std::vector<int64_t>> parse_tensor_meta(std::string_view note);

// Throws CommError(kTooLarge) for more than any machine has.
TC_API void require_addressable_size(size_t size_bytes, size_t slots);
// The byte where a put of `tensor` begins in the window of `rank`, which has `room_bytes`. Throws
// CommError(kOutOfRange) where it does not fit.
TC_API uint64_t put_offset_bytes(const at::Tensor& tensor, size_t offset_nelems, int rank,
                                 uint64_t room_bytes);
// The byte where a view begins; as above.
TC_API uint64_t view_offset_bytes(at::IntArrayRef sizes, at::ScalarType dtype,
                                  int64_t offset_nelems, int rank, uint64_t room_bytes);
// Throws CommError(kOutOfRange).
TC_API void require_slot(size_t slot, int rank, uint64_t slots);
// What calls of a window throw whose communicator has other members now.
TC_API CommError stale_window_error(const Context& context);

}  // namespace torch::comms
