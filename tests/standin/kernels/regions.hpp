#pragma once

#include "ctran/kernels/regions.hpp"
#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// What `call` asks for, on one rank: its pushes, of all blocks of a GPU's kernel one after the
// other, or its part of a reduction.
void run(Launch& launch, const kernels::RegionCall& call);

}  // namespace torch::comms::standin
