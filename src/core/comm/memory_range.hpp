#pragma once

#include <compare>
#include <cstddef>

#include <ATen/core/Tensor.h>
#include <torchcomms/base/error.hpp>

namespace torch::comms {

// A piece of memory.
struct MemoryRange {
  void* begin = nullptr;
  size_t size_bytes = 0;
  auto operator<=>(const MemoryRange&) const = default;
};

// The memory that a tensor fills, in whatever order its elements are. A tensor without elements has
// the range {nullptr, 0}.
// Throws: CommError(kInvalidArgument) with `context` for a tensor that is undefined, sparse, or in
// several pieces.
TC_API MemoryRange memory_range_of(const at::Tensor& tensor, const Context& context);

}  // namespace torch::comms
