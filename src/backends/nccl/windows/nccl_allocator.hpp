#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include "vendor/vendor_library.hpp"

namespace torch::comms::nccl {

// The memory of a vendor's library, which it may reach from other devices without copies, as an
// allocator of torch: for torch.cuda.MemPool where the library works on devices, of CPU memory
// where it works on that. The library is kept. Throws CommError without context: kUnsupported where
// the library, or torch, has no such thing; kBackendUnavailable.
std::shared_ptr<c10::Allocator> make_allocator(const Vendor& vendor);

// Zeros in such memory, on the current stream; it goes with the tensor. `device` is the library's.
at::Tensor allocate_bytes(const Vendor& vendor, const at::Device& device, size_t size_bytes);

// The allocation of any such memory of this process that `address` is in. Any thread.
struct Allocation {
  char* begin;
  size_t size_bytes;
};
std::optional<Allocation> allocation_of(const void* address);

}  // namespace torch::comms::nccl
