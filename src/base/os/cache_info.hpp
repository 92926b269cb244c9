#pragma once

#include <cstddef>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// The cache before memory, and how many cores have it in common.
struct LastLevelCache {
  size_t bytes = 0;  // 0: the system does not say
  int cores = 1;
};

// That of the core which asks first, for all times. Any thread.
TC_API const LastLevelCache& last_level_cache() noexcept;

// Whether whoever reads and writes `bytes` in all had better write past the caches (copy.hpp). A
// store into them reads its line first, but finds it there if the data is small enough, as does
// whoever reads the result next. So: from the size of the last cache on, or 64 MiB of it. (Measured
// where that was larger: a sum of two to 16 MiB took 1.4 times as long past the caches that hold
// it, a copy of 64 MiB 0.7 times.)
TC_API bool exceeds_last_level_cache(size_t bytes) noexcept;

// The same of the part that this rank has of it, where all ranks of the host are about the same at
// the same time. So many of them share so many cores: what is most of all that was told counts, at
// first a rank is alone. (Measured with two ranks whose cores share 32 MiB: an all_gather of 16 MB
// takes 2.15 ms with results past the caches, and 2.85 ms without; one of 8 MB 0.75 ms, and 0.6
// ms.)
TC_API void set_cache_sharers(int ranks, int cores) noexcept;
TC_API bool exceeds_own_cache_share(size_t bytes) noexcept;

// How many of the ranks share one such cache: at most all of them.
TC_API int cache_sharers(const LastLevelCache& cache, int ranks, int cores) noexcept;
// Whether `bytes` are more than one of so many has of it.
TC_API bool exceeds_cache_share(const LastLevelCache& cache, int sharers, size_t bytes) noexcept;

// As the kernel tells in the folder "/sys/devices/system/cpu/cpu0/cache". What a C library says may
// be the sum of all that a machine has.
TC_API LastLevelCache read_last_level_cache(const std::string& folder);

}  // namespace torch::comms::base
