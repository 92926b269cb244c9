#pragma once

#include "ctran/kernels/region_plan.hpp"
#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// What `call` asks for, on one rank: its pushes, of all blocks of a GPU's kernel one after the
// other, or its part of a reduction. Of kCopies one of the launches in which the ranks meet.
void run(Launch& launch, const kernels::RegionCall& call);
// A kernel that does not meet.
void reduce(const kernels::RegionParams& params, ctran::ReduceOp op);

}  // namespace torch::comms::standin
