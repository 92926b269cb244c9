#pragma once

#include <memory>

#include "backends/nccl/graphs/graph_registry.hpp"

namespace torch::comms::nccl {

// `what` graphs use lives until none of them can be launched any more, on a thread of ours, or to
// the end of the process.
void retain_until_graphs_end(std::unique_ptr<GraphRegistry> graphs,
                             std::shared_ptr<const void> what);

}  // namespace torch::comms::nccl
