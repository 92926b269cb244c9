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

// Functions that all windows of tensors share, wherever their memory is. They throw CommError
// without context.
namespace torch::comms {

// Encode and decode the dtype and shape of a tensor, which the members of a window exchange.
// encode_tensor_meta() throws CommError(kInvalidArgument) for more than 16 dimensions,
// parse_tensor_meta() CommError(kMismatch).
TC_API std::string encode_tensor_meta(const at::Tensor& tensor);
TC_API std::pair<at::ScalarType, std::vector<int64_t>> parse_tensor_meta(std::string_view note);

// Throws: CommError(kTooLarge) if a window of this size cannot be addressed.
TC_API void require_addressable_size(size_t size_bytes, size_t slots);
// Returns: the byte offset of a put of `tensor` in the window of `rank`, which has `room_bytes`.
// Throws: CommError(kOutOfRange) if the tensor does not fit.
TC_API uint64_t put_offset_bytes(const at::Tensor& tensor, size_t offset_nelems, int rank,
                                 uint64_t room_bytes);
// Returns: the byte offset of a view.
// Throws: CommError(kOutOfRange) if the view does not fit.
TC_API uint64_t view_offset_bytes(at::IntArrayRef sizes, at::ScalarType dtype,
                                  int64_t offset_nelems, int rank, uint64_t room_bytes);
// Throws: CommError(kOutOfRange) if `rank` has no such slot.
TC_API void require_slot(size_t slot, int rank, uint64_t slots);
// Returns: the error for calls of a window whose communicator has new members.
TC_API CommError stale_window_error(const Context& context);

}  // namespace torch::comms
