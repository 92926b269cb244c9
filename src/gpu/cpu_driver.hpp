#pragma once

#include <torchcomms/base/export.hpp>

#include "gpu/driver_symbols.hpp"

namespace torch::comms::gpu {

// Returns the driver functions for host memory. Allocations are files in memory, and one device
// holds those of all processes. A test may copy the table and replace functions.
TC_API const DriverTable& cpu_driver_table() noexcept;

}  // namespace torch::comms::gpu
