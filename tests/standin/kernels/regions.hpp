#pragma once

#include "ctran/kernels/windows/window_plan.hpp"
#include "standin/kernels/launch.hpp"

namespace torch::comms::standin {

// One launch of a region's kernels.
struct RegionLaunch {
  kernels::WindowCollectiveParams params;
  ctran::ReduceOpCode op;
  bool reduces;  // else it pushes, or only meets
  uint64_t timeout_ns;
};
// What it does on one rank: its pushes, of all blocks of a GPU's kernel one after the other, or its
// part of a reduction.
void run(Launch& launch, const RegionLaunch& one);

}  // namespace torch::comms::standin
