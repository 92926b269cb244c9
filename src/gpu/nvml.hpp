#pragma once

#include <optional>

#include "gpu/driver_symbols.hpp"

namespace torch::comms::gpu {

// Whether NVLink joins two GPUs of this host, of which the process need not see both: NVIDIA's
// management library knows all of them, whatever CUDA_VISIBLE_DEVICES says. Nothing where there is
// no such library, or it cannot tell.
//
// Threads: any.
std::optional<bool> are_connected_by_nvlink(const DriverUuid& one, const DriverUuid& other);

}  // namespace torch::comms::gpu
