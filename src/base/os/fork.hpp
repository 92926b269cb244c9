#pragma once

#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Returns how many forks lie between the first process and this one: 0 in the first process, one
// more in each child. An object that stores the value at its creation can detect that it was made
// before a fork. The call costs one load.
//
// Threads: any.
TC_API uint64_t fork_generation() noexcept;

}  // namespace torch::comms::base
