#pragma once

#include <optional>

namespace torch::comms {

// Finds the global rank of this process for a communicator of new_comm() with `size` ranks. If it
// is only a part of a larger job, its own ranks do not identify processes.
// Returns: the launcher's rank; -1 if no launcher gives it but an earlier communicator of this
// process was larger; nullopt if `size` is the whole job.
// Threads: any.
std::optional<int> global_rank_if_subset(int size);

}  // namespace torch::comms
