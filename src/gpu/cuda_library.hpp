#pragma once

#include <string>

namespace torch::comms::gpu {

// Returns the function "cu" + `name` of the CUDA driver; the first call loads the driver. Null if
// it is missing; `why` is then the reason, for users to read.
void* cuda_driver_function(const char* name, std::string& why);

}  // namespace torch::comms::gpu
