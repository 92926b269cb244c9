#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace torch::comms::ctran {

// The instruction sets that loops are compiled for. All give the same bits; the later, the faster.
enum class Level : uint8_t {
  kPortable,  // 16 bytes at once: SSE2, NEON, or what the compiler makes of it
  kAvx2,      // with F16C
  kAvx512,    // F, BW, DQ and VL
};

// What this machine can run, slowest first; never empty. The last one is the default everywhere.
std::span<const Level> levels() noexcept;
inline Level best_level() noexcept { return levels().back(); }

std::string_view name_of(Level level) noexcept;

}  // namespace torch::comms::ctran
