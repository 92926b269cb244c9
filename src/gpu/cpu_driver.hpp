#pragma once

#include <torchcomms/base/export.hpp>

#include "gpu/driver_symbols.hpp"

namespace torch::comms::gpu {

// The driver's row for host memory: allocations are files in memory, and one device holds them all,
// whatever process has made them. A test may replace functions of it.
TC_API const DriverTable& cpu_driver_table() noexcept;

}  // namespace torch::comms::gpu
