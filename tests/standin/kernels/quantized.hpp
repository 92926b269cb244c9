#pragma once

#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// The part of one rank, with the bits that kernels of GPUs give. After a stop it is NaN.
void run(Launch& launch, const kernels::QuantizedReduceScatter& call);

}  // namespace torch::comms::standin
