#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

// Tensors as the one-dimensional memory that Gloo moves. A view made here shares the memory of its
// tensor and nothing else: no autograd, no version counter, no subclass; so it works for every
// dtype and every shape, under any mode of torch. Any thread.
namespace torch::comms::gloo {

using Tensors = std::vector<at::Tensor>;

// The elements of a contiguous tensor, read as `dtype`, whose size must divide the tensor's element
// size. Throws CommError(kInvalidArgument): the tensor has no memory (a fake tensor), or is a
// conjugate or negative of its memory that torch has not carried out yet.
at::Tensor flat_view(const at::Tensor& tensor, at::ScalarType dtype);

inline at::Tensor byte_view(const at::Tensor& tensor) { return flat_view(tensor, at::kByte); }

// A flat tensor read as `dtype`, of any size that divides its bytes and where they begin.
at::Tensor view_as(const at::Tensor& flat, at::ScalarType dtype);

// Elements [begin, begin + count) of a flat tensor.
at::Tensor slice(const at::Tensor& flat, int64_t begin, int64_t count);

// New memory for `count` elements, uninitialised.
at::Tensor scratch(int64_t count, at::ScalarType dtype);

// All bytes of the list in order, without copying, where the tensors lie one after the other in one
// storage.
std::optional<at::Tensor> joined_view(const Tensors& tensors);

// All bytes of the list in order: `joined`, or else a copy.
at::Tensor pack(const Tensors& tensors);

// Copies bytes, in order, into the tensors of the list.
void unpack(const at::Tensor& packed, const Tensors& tensors);

// The byte views of a list.
Tensors byte_views(const Tensors& tensors);

int64_t total_bytes(const Tensors& tensors);

// Whether two flat tensors share memory.
bool overlap(const at::Tensor& a, const at::Tensor& b);

}  // namespace torch::comms::gloo
