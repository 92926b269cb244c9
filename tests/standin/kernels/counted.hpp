#pragma once

#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// Reads the counts now, and moves the parts that they say, on one rank.
void run(Launch& launch, const kernels::AllToAllVDynamic& exchange);

}  // namespace torch::comms::standin
