#pragma once

#include <cstdint>

#include "ctran/kernels/protocol/portable.hpp"

namespace torch::comms::ctran::kernels {

// A vector of 16 bytes, the unit in which kernels move data.
struct alignas(16) Vector16 {
  uint32_t x, y, z, w;
};

// Returns the 16 bytes at offset `bytes` (0 to 15) of the 32 bytes that `low` and `high` form.
TC_BOTH Vector16 shifted(const Vector16& low, const Vector16& high, uint32_t bytes) {
  const bool by_8 = (bytes & 8) != 0, by_4 = (bytes & 4) != 0;
  uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  TC_UNROLL
  for (int i = 0; i < 6; ++i) words[i] = by_8 ? words[i + 2] : words[i];
  TC_UNROLL
  for (int i = 0; i < 5; ++i) words[i] = by_4 ? words[i + 1] : words[i];
  TC_UNROLL
  for (int i = 0; i < 4; ++i)
    words[i] = static_cast<uint32_t>((uint64_t{words[i + 1]} << 32 | words[i]) >> (bytes % 4 * 8));
  return {words[0], words[1], words[2], words[3]};
}

}  // namespace torch::comms::ctran::kernels
