#pragma once

#include <cstddef>

namespace torch::comms::ctran {

// Whether a call that reads and writes `bytes` in all had better write past the caches. A store
// into them reads its line first, but finds it there if the data is small enough, as does whoever
// reads the result next. So: above the size of the last cache, or 64 MiB of it. (Measured where
// that was larger: a sum of two to 16 MiB took 1.4 times as long past the caches that hold it, a
// copy of 64 MiB 0.7 times.)
bool is_streamed(size_t bytes) noexcept;

// So many ranks of this host share so many cores. What a reduction writes is read next by others;
// what a copy does is a result, of which each rank has one at the same time: it has its part of the
// cache to itself. (Measured with two ranks whose cores share 32 MiB: an all_gather of 16 MB takes
// 2.05 ms, and 2.2 ms if its copies are not streamed; one of 8 MB 0.75 ms, and 0.6 ms.) Whoever
// tells last is heard, at first a rank is alone. Any thread.
void share_last_cache(int ranks, int cores) noexcept;

// Whether a copy of so many bytes is written past the caches.
bool is_copy_streamed(size_t bytes) noexcept;

// into[0, bytes) = from[0, bytes): memcpy, or past the caches, and then fenced. The two are
// disjoint or the same. Any alignment.
void copy_bytes(void* into, const void* from, size_t bytes) noexcept;

}  // namespace torch::comms::ctran
