#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace torch::comms::monitor {

inline constexpr uint8_t kNoData = 0xff;  // instead of a dtype: nothing is moved, as by a barrier

// What the ranks of an operation must agree on, as plain data that travels.
struct Fingerprint {
  uint64_t sequence = 0;        // of the collective in its group; 0: none was called
  uint64_t algorithm_hash = 0;  // hash of the algorithm and chunk that were forced
  int64_t count = -1;        // of the whole vector, or of equal blocks together; -1: each its own
  uint64_t counts_hash = 0;  // hash of blocks that all ranks know
  char name[32] = {};        // the public name
  uint32_t element_bytes = 0;
  int32_t root = -1;
  uint8_t operation = 0, dtype = 0, reduce_op = 0xff;  // the last two as base::OpRecord has them
  uint8_t is_presence_only = 0;                        // 1: only whether all ranks will call it
  uint8_t spare[4] = {};

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;

  // "all_reduce(float32, 1000 elements, SUM) as number 7".
  std::string format() const;
  // All of it but the number.
  uint64_t hash_without_sequence() const noexcept;
};

// FNV-1a [Fowler, Noll, Vo] over 8 bytes at a time, finished by SplitMix64.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0) noexcept;
// Of SplitMix64 [Steele, Lea, Flood, OOPSLA 2014]: every bit of it from all bits.
uint64_t splitmix64_finish(uint64_t value) noexcept;

}  // namespace torch::comms::monitor
