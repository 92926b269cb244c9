#pragma once

#include <memory>

#include "backends/nccl/graphs/graph_registry.hpp"

namespace torch::comms::nccl {

// Keeps `what`, which graphs use, alive until none of `graphs` can be launched any more, or until
// the process exits. The watchdog thread releases it.
void retain_until_graphs_end(std::unique_ptr<GraphRegistry> graphs,
                             std::shared_ptr<const void> what);

}  // namespace torch::comms::nccl
