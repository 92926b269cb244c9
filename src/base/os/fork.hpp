#pragma once

#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Returns how many calls of fork() lie between the process that loaded this library and this
// process: 0 in the former, one more in each child. An object that stores the value at its creation
// can detect that it was made before a fork. The call costs one load.
//
// Threads: any.
TC_API uint64_t fork_generation() noexcept;

}  // namespace torch::comms::base
