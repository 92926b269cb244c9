#pragma once

#include <optional>

namespace torch::comms {

// The rank of this process in its job, where that has more ranks than `size`, so that a
// communicator of new_comm() with as many has a part of them and its own ranks name no process: the
// launcher's, or -1 where none says and an earlier communicator of this process was larger. nullopt
// where `size` is the whole job. Any thread.
std::optional<int> global_rank_if_subset(int size);

}  // namespace torch::comms
