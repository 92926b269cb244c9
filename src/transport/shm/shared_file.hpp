#pragma once

#include "transport/protocol/region_table.hpp"

namespace torch::comms::transport::shm {

// The file of the shared mapping that holds all of `bytes`, with a descriptor of its own, so that
// peers can map it: memory of allocate(), or what other libraries share between processes. Nothing
// where the memory is this process's alone, or its file is not to be found: nobody here holds it
// open, and it has lost its name.
FileLocation find_shared_file(Bytes bytes) noexcept;

}  // namespace torch::comms::transport::shm
