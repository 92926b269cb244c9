#pragma once

#include <cstddef>

namespace torch::comms::nccl {

// How often this thread has asked the allocator for memory.
size_t times_asked() noexcept;

}  // namespace torch::comms::nccl
