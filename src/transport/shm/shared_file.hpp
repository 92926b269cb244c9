#pragma once

#include "transport/protocol/region_table.hpp"

namespace torch::comms::transport::shm {

// Finds the file of the shared mapping that holds all of `bytes`, so that peers can map it: memory
// of allocate(), or memory that other libraries share between processes.
// Returns: the file with a new descriptor. Empty if the memory is private, or if this process does
// not hold the file open and its name was removed.
FileLocation find_shared_file(Bytes bytes) noexcept;

}  // namespace torch::comms::transport::shm
