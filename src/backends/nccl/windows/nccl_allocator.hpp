#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "vendor/vendor_library.hpp"

namespace torch::comms::nccl {

// Returns: a torch allocator of the vendor library's memory (ncclMemAlloc), which the library can
// access from other devices without copies. It is an allocator for torch.cuda.MemPool, or of CPU
// memory if the library works on host memory. It keeps the library loaded.
// Throws: CommError without context: kUnsupported if the library or torch has no such allocator;
// kBackendUnavailable.
std::shared_ptr<c10::Allocator> make_allocator(const Vendor& vendor);

// Returns: a tensor of zeros in the library's memory, filled on the current stream. The memory is
// freed with the tensor. `device` is the library's device.
// Throws: CommError(kResourceExhausted) without context.
at::Tensor allocate_bytes(const Vendor& vendor, const at::Device& device, size_t size_bytes);

// Returns: the allocation of a vendor library in this process that contains `address`.
// Threads: any.
struct Allocation {
  char* begin;
  size_t size_bytes;
};
std::optional<Allocation> allocation_of(const void* address);

}  // namespace torch::comms::nccl
