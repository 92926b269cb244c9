#pragma once

#include <cstdint>

namespace torch::comms::base {

// Initial value of the FNV-1a hash [Fowler, Noll, Vo; RFC 9923]. The hash is the same on every host
// and in every build.
inline constexpr uint64_t kFnvOffsetBasis = 0xcbf29ce484222325;

// Extend `hash` by one byte, or by the eight bytes of a number, lowest first.
constexpr uint64_t fnv1a_add_byte(uint64_t hash, uint8_t byte) noexcept {
  return (hash ^ byte) * 0x100000001b3;
}
constexpr uint64_t fnv1a_add(uint64_t hash, uint64_t number) noexcept {
  for (int shift = 0; shift < 64; shift += 8)
    hash = fnv1a_add_byte(hash, static_cast<uint8_t>(number >> shift));
  return hash;
}

}  // namespace torch::comms::base
