#pragma once

#include <optional>

#include "gpu/driver_symbols.hpp"

namespace torch::comms::gpu {

// Returns whether NVLink connects two GPUs of this host. NVML knows all GPUs, so
// CUDA_VISIBLE_DEVICES need not include both. Returns nothing if NVML is missing or does not know.
//
// Threads: any.
std::optional<bool> are_connected_by_nvlink(const DriverUuid& one, const DriverUuid& other);

}  // namespace torch::comms::gpu
