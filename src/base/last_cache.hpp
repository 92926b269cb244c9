#pragma once

#include <cstddef>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// The cache before memory, and how many cores have it in common.
struct LastCache {
  size_t bytes = 0;  // 0: the system does not say
  int cores = 1;
};

// That of the core which asks first, for all times. Any thread.
TC_API const LastCache& last_cache() noexcept;

// As the kernel tells in the folder "/sys/devices/system/cpu/cpu0/cache". What a C library says may
// be the sum of all that a machine has.
TC_API LastCache read_last_cache(const std::string& folder);

}  // namespace torch::comms::base
