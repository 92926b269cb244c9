#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace torch::comms::ctran {

// The instruction sets that loops are compiled for, slowest first. All give the same bits.
enum class SimdLevel : uint8_t {
  kPortable,  // 16-byte vectors: SSE2, NEON, or what the compiler generates
  kAvx2,      // with F16C
  kAvx512,    // F, BW, DQ and VL
};

// Returns: the levels that this machine supports, slowest first; never empty. The last one is the
// default.
std::span<const SimdLevel> simd_levels() noexcept;
inline SimdLevel best_simd_level() noexcept { return simd_levels().back(); }

std::string_view name_of(SimdLevel level) noexcept;

}  // namespace torch::comms::ctran
