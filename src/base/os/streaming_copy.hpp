#pragma once

#include <cstddef>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// into[0, bytes) = from[0, bytes), of any alignment; the two are disjoint or the same. Past the
// caches, what is written does not read its lines first, nor drive others out of them, and is in
// memory, fenced, when this returns: for results that the caches would not hold until they are read
// (last_cache.hpp). Where the processor has no such stores, as any copy.
TC_API void copy_bytes(void* into, const void* from, size_t bytes, bool past_caches) noexcept;

}  // namespace torch::comms::base
