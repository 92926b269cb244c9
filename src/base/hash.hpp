#pragma once

#include <cstdint>

namespace torch::comms::base {

// Of a row of numbers, FNV-1a: the same on every host and in every build.
inline constexpr uint64_t kHashOfNothing = 0xcbf29ce484222325;

// Of what `hash` is of, and `number` behind it.
constexpr uint64_t hash_with(uint64_t hash, uint64_t number) noexcept {
  for (int shift = 0; shift < 64; shift += 8)
    hash = (hash ^ ((number >> shift) & 0xff)) * 0x100000001b3;
  return hash;
}

}  // namespace torch::comms::base
