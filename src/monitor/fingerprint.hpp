#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace torch::comms::monitor {

inline constexpr uint8_t kNoData =
    0xff;  // as dtype: the operation moves no data, such as a barrier

// What the ranks must agree on in a collective, as trivially copyable data that is sent to peers.
struct Fingerprint {
  uint64_t sequence = 0;        // number of the collective in its group; 0: none
  uint64_t algorithm_hash = 0;  // hash of the algorithm and chunk size that hints force
  int64_t count = -1;  // elements of the whole vector, or of all equal blocks; -1: differs by rank
  uint64_t counts_hash = 0;  // hash of the block sizes, if all ranks know them
  char name[32] = {};        // the public name of the operation
  uint32_t element_bytes = 0;
  int32_t root = -1;
  uint8_t operation = 0, dtype = 0,
          reduce_op = 0xff;      // the last two in the encoding of base::OpRecord
  uint8_t is_presence_only = 0;  // 1: the fingerprint of a consistency check before the call
  uint8_t spare[4] = {};

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;

  // Returns a text such as "all_reduce(float32, 1000 elements, SUM) as number 7".
  std::string format() const;
  // Returns a hash of all fields but the sequence.
  uint64_t hash_without_sequence() const noexcept;
};

// Hashes 8 bytes at a time: FNV-1a [Fowler, Noll, Vo], finished by SplitMix64.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0) noexcept;
// The finalizer of SplitMix64 [Steele, Lea, Flood, OOPSLA 2014]: each output bit depends on all
// input bits.
uint64_t splitmix64_finish(uint64_t value) noexcept;

}  // namespace torch::comms::monitor
