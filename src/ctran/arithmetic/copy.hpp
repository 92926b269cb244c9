#pragma once

#include <cstddef>

namespace torch::comms::ctran {

// From this many bytes of result on it is faster to write past the caches: a store into them reads
// the line first. Below, whoever reads the result next finds it there.
inline constexpr size_t kStreamFrom = size_t{4} << 20;

// into[0, bytes) = from[0, bytes): memcpy where that is best, past the caches (and fenced) from
// kStreamFrom on. The two are disjoint or the same. Any alignment.
void copy(void* into, const void* from, size_t bytes) noexcept;

}  // namespace torch::comms::ctran
