#include "ctran/reduction/loop_table.hpp"

#include <algorithm>

#include "base/os/cache_info.hpp"

namespace torch::comms::ctran {

const LoopTable& loops_of(SimdLevel level) noexcept {
#if defined(__x86_64__)
  if (level == SimdLevel::kAvx512) return kAvx512Loops;
  if (level == SimdLevel::kAvx2) return kAvx2Loops;
#endif
  (void)level;
  return kPortableLoops;
}

void run_loop(ReductionLoop loop, LoopWork& work, size_t count, size_t parts,
              size_t part_bytes) noexcept {
  const size_t element = parts * part_bytes, end = count * parts;
  work.end = end;
  if (base::exceeds_last_level_cache(count * element * (work.operands + 1))) {
    // Stores past the caches must be aligned and must not split an element. A target that is also
    // an operand is in a cache anyway.
    const size_t lead = -reinterpret_cast<uintptr_t>(work.into) % 64;
    const auto* last = work.sources + work.operands;
    if (lead % element == 0 && std::find(work.sources, last, work.into) == last) {
      work.end = std::min(lead / part_bytes, end);
      if (work.end != 0) loop(work);
      work.begin = work.end;
      work.end = end;
      work.is_non_temporal = true;
    }
  }
  if (work.begin != work.end) loop(work);
}

}  // namespace torch::comms::ctran
