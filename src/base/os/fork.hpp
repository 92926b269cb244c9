#pragma once

#include <cstdint>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// How often this process's line has forked on the child's side: 0 in the first process, one more in
// each child. An object remembers the value at its birth and thereby knows that it is a parent's.
// Any thread; costs one load.
TC_API uint64_t fork_generation() noexcept;

}  // namespace torch::comms::base
