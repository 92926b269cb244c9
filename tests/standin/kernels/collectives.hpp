#pragma once

#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// What `call` asks for, on one rank. After a stop, outputs of floating point are NaN.
void run(Launch& launch, const kernels::KernelCall& call);

}  // namespace torch::comms::standin
