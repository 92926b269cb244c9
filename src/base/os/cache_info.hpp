#pragma once

#include <cstddef>
#include <string>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// The size of the last-level cache and the number of cores that share it.
struct LastLevelCache {
  size_t bytes = 0;  // 0: unknown
  int cores = 1;
};

// Returns the last-level cache of the core on which the first call ran; later calls return the same
// value.
// Threads: any.
TC_API const LastLevelCache& last_level_cache() noexcept;

// Returns whether code that reads and writes `bytes` in total should use non-temporal stores
// (streaming_copy.hpp). A normal store reads its cache line first. That is cheap if the data fits
// the cache, and the next reader finds the data there. The threshold is the size of the last-level
// cache, at most 64 MiB. Measured on a machine with a larger cache: with non-temporal stores a sum
// of two inputs up to 16 MiB took 1.4 times as long, a copy of 64 MiB 0.7 times.
TC_API bool exceeds_last_level_cache(size_t bytes) noexcept;

// set_cache_sharers() says that `ranks` ranks share `cores` cores of this host; the largest result
// so far counts, and at first a rank has the cache to itself. exceeds_own_cache_share() compares
// `bytes` with this rank's share of the last-level cache, for phases in which all ranks of the host
// do the same. Measured with two ranks whose cores share 32 MiB: an all_gather of 16 MB takes 2.15
// ms with non-temporal stores and 2.85 ms without. One of 8 MB takes 0.75 ms with them and 0.6 ms
// without.
TC_API void set_cache_sharers(int ranks, int cores) noexcept;
TC_API bool exceeds_own_cache_share(size_t bytes) noexcept;

// Returns how many of the `ranks` ranks share one such cache: from 1 to `ranks`.
TC_API int cache_sharers(const LastLevelCache& cache, int ranks, int cores) noexcept;
// Returns whether `bytes` are at least the cache share of one of `sharers` ranks.
TC_API bool exceeds_cache_share(const LastLevelCache& cache, int sharers, size_t bytes) noexcept;

// Reads the cache data from a kernel folder such as "/sys/devices/system/cpu/cpu0/cache". sysconf()
// is less reliable: a C library may return the sum over all caches of the machine.
TC_API LastLevelCache read_last_level_cache(const std::string& folder);

}  // namespace torch::comms::base
