#pragma once

#include <string>

namespace torch::comms::gpu {

// The function "cu" + `name` of CUDA's driver, which is opened at the first question. Null where
// there is none; `why` is then the reason, for users to read.
void* cuda_driver_function(const char* name, std::string& why);

}  // namespace torch::comms::gpu
