#pragma once

#include <cstddef>

namespace torch::comms::ctran {

// Whether a call that reads and writes `bytes` in all had better write past the caches. A store
// into them reads its line first, but finds it there if the data is small enough, as does whoever
// reads the result next. So: above the size of the last cache, or 64 MiB of it. (Measured where
// that has 480 MiB for many: a sum of two to 16 MiB took 1.4 times as long past the caches that
// hold it, a copy of 64 MiB 0.7 times.)
bool is_streamed(size_t bytes) noexcept;

// into[0, bytes) = from[0, bytes): memcpy, or past the caches where is_streamed(2 * bytes), and
// then fenced. The two are disjoint or the same. Any alignment.
void copy_bytes(void* into, const void* from, size_t bytes) noexcept;

}  // namespace torch::comms::ctran
