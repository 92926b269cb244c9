#pragma once

#include <memory>

#include "backends/nccl/lane_graphs.hpp"

namespace torch::comms::nccl {

// `what` graphs use lives until none of them can be launched any more, on a thread of ours, or to
// the end of the process.
void keep_for(std::unique_ptr<LaneGraphs> graphs, std::shared_ptr<const void> what);

}  // namespace torch::comms::nccl
