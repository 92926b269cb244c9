#pragma once

#include <cstddef>

#include <torchcomms/base/export.hpp>

namespace torch::comms::base {

// Copies `bytes` bytes, of any alignment; the two ranges are disjoint or identical. With
// `past_caches` it uses non-temporal stores. These do not read the target lines first and do not
// evict others. The data is fenced and in memory on return. Use them for results that would leave
// the caches before they are read (cache_info.hpp). Processors without such stores do a normal
// copy.
TC_API void copy_bytes(void* into, const void* from, size_t bytes, bool past_caches) noexcept;

}  // namespace torch::comms::base
