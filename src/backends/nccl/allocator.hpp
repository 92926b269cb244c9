#pragma once

#include <memory>

#include <c10/core/Allocator.h>

#include "nccl/table.hpp"

namespace torch::comms::nccl {

// The memory of a vendor's library, which it may reach from other devices without copies, as an
// allocator of torch: for torch.cuda.MemPool where the library works on devices, of CPU memory
// where it works on that. The library is kept. Throws CommError without context: kUnsupported where
// the library, or torch, has no such thing; kBackendUnavailable.
std::shared_ptr<c10::Allocator> make_allocator(const Vendor& vendor);

}  // namespace torch::comms::nccl
