#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

// Presents tensors as the one-dimensional memory that Gloo moves. A view made here shares only the
// memory of its tensor: it has no autograd state, version counter or subclass. It works for every
// dtype and shape, in any mode of torch.
// Threads: any.
namespace torch::comms::gloo {

using Tensors = std::vector<at::Tensor>;

// Returns: the elements of a contiguous tensor, read as `dtype`, whose size must divide the
// tensor's element size.
// Throws: CommError(kInvalidArgument) if the tensor has no memory (a fake tensor), or is a lazy
// conjugate or negative that torch has not materialized yet.
at::Tensor flat_view(const at::Tensor& tensor, at::ScalarType dtype);

inline at::Tensor byte_view(const at::Tensor& tensor) { return flat_view(tensor, at::kByte); }

// Reads a flat tensor as `dtype`, whose size must divide both the number of bytes and the offset of
// the first byte.
at::Tensor view_as(const at::Tensor& flat, at::ScalarType dtype);

// Returns: a view of the elements [begin, begin + count) of a flat tensor.
at::Tensor slice(const at::Tensor& flat, int64_t begin, int64_t count);

// Returns: new uninitialized memory for `count` elements.
at::Tensor scratch(int64_t count, at::ScalarType dtype);

// Returns: a view of all bytes of the list in order, if the tensors lie one after the other in one
// storage; otherwise nothing. Copies nothing.
std::optional<at::Tensor> joined_view(const Tensors& tensors);

// Returns: all bytes of the list in order: the view of joined_view() if possible, otherwise a copy.
at::Tensor pack(const Tensors& tensors);

// Copies the bytes of `packed`, in order, into the tensors of the list.
void unpack(const at::Tensor& packed, const Tensors& tensors);

Tensors byte_views(const Tensors& tensors);

int64_t total_bytes(const Tensors& tensors);

bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace torch::comms::gloo
