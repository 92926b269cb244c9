#include "ctran/arithmetic/kernel.hpp"

#include <algorithm>

#include "base/cache_info.hpp"

namespace torch::comms::ctran {

const Kernels& kernels_of(Level level) noexcept {
#if defined(__x86_64__)
  if (level == Level::kAvx512) return kAvx512Kernels;
  if (level == Level::kAvx2) return kAvx2Kernels;
#endif
  (void)level;
  return kPortableKernels;
}

void launch(Kernel loop, LoopWork& work, size_t count, size_t parts, size_t part_bytes) noexcept {
  const size_t element = parts * part_bytes, end = count * parts;
  work.end = end;
  if (base::exceeds_last_level_cache(count * element * (work.operands + 1))) {
    // Stores past the caches are aligned, and no element is cut. What is read anyway is in a cache.
    const size_t lead = -reinterpret_cast<uintptr_t>(work.into) % 64;
    const auto* last = work.sources + work.operands;
    if (lead % element == 0 && std::find(work.sources, last, work.into) == last) {
      work.end = std::min(lead / part_bytes, end);
      if (work.end != 0) loop(work);
      work.begin = work.end;
      work.end = end;
      work.stream = true;
    }
  }
  if (work.begin != work.end) loop(work);
}

}  // namespace torch::comms::ctran
