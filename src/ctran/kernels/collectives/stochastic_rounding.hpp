#pragma once

#include "ctran/kernels/collectives/elements.hpp"

// Stochastic rounding to bfloat16: up with the probability that makes the mean exact. The random
// bits are a function of the element and of its receiver, so they are the same on every device, in
// every order and in every run.
namespace torch::comms::ctran::kernels {

struct PhiloxWords {
  uint32_t word[4];
};

// Philox4x32-10: the counter-based generator of J. Salmon, M. Moraes, R. Dror and D. Shaw,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
TC_BOTH PhiloxWords philox(PhiloxWords counter, uint64_t key) {
  constexpr uint32_t kMultiply[] = {0xD2511F53, 0xCD9E8D57};
  constexpr uint32_t kWeyl[] = {0x9E3779B9, 0xBB67AE85};
  uint32_t low = static_cast<uint32_t>(key), high = static_cast<uint32_t>(key >> 32);
  TC_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{kMultiply[0]} * counter.word[0];
    const uint64_t second = uint64_t{kMultiply[1]} * counter.word[2];
    counter = {{static_cast<uint32_t>(second >> 32) ^ counter.word[1] ^ low,
                static_cast<uint32_t>(second),
                static_cast<uint32_t>(first >> 32) ^ counter.word[3] ^ high,
                static_cast<uint32_t>(first)}};
    low += kWeyl[0];
    high += kWeyl[1];
  }
  return counter;
}

// Returns random bits for elements 8 * group to 8 * group + 7 of the part that `source` has for
// `receiver`: 16 bits for each element.
inline constexpr int kDraws = 8;
TC_BOTH PhiloxWords draws_of(uint64_t seed, int source, int receiver, uint64_t group) {
  return philox({{static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32),
                  static_cast<uint32_t>(source), static_cast<uint32_t>(receiver)}},
                seed);
}
TC_BOTH uint32_t draw_of(const PhiloxWords& draws, int element) {
  return draws.word[element / 2] >> (element % 2 * 16) & 0xffff;
}

// Rounds to one of the two bfloat16 around a value. `draw`: 0 to 65535. The result is the one away
// from zero for as many of 65536 draws as the value is 65536ths of the way to it. A value that is a
// bfloat16 does not change.
// A finite value stays finite: beyond the largest bfloat16 it becomes that one. NaN becomes quiet.
TC_BOTH uint16_t round_stochastically(float value, uint32_t draw) {
  constexpr uint32_t kInfinity = 0x7f800000, kQuiet = 1u << 22;
  const uint32_t bits = bits_as<uint32_t>(value), magnitude = bits & 0x7fffffff;
  if (magnitude > kInfinity) return static_cast<uint16_t>((bits | kQuiet) >> 16);
  const uint32_t moved = magnitude + draw;
  const bool overflows = moved >= kInfinity && magnitude < kInfinity;
  return static_cast<uint16_t>((overflows ? kInfinity - 1 : moved) >> 16 |
                               (bits & 0x80000000) >> 16);
}

}  // namespace torch::comms::ctran::kernels
