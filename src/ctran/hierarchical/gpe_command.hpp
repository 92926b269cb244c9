#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "ctran/kernels/protocol/host_ring.hpp"
#include "ctran/reduction/dtype.hpp"

namespace torch::comms::ctran {

// The command for one chunk: an operation among the ranks of a rail, on staging memory.
struct GpeCommand {
  enum class Kind : uint8_t { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kBarrier };
  Kind kind;
  Dtype dtype;
  ReduceOpCode op;
  uint8_t reserved;
  int32_t root;    // rank of the rail
  uint64_t begin;  // byte offset in the staging memory; the operation is in place
  // Elements of one rank's part for reduce_scatter and all_gather, of the whole chunk otherwise.
  uint64_t count;
  uint64_t timeout_ms;  // from the time at which the host begins
  uint64_t chunk;       // index of the chunk in its operation, for errors
  uint64_t unused[2];
};

using CommandWords = std::array<uint64_t, kernels::kCommandWords>;
static_assert(sizeof(GpeCommand) == sizeof(CommandWords));

inline CommandWords to_words(const GpeCommand& command) {
  CommandWords words;
  std::memcpy(words.data(), &command, sizeof command);
  return words;
}
inline GpeCommand parse_command(const CommandWords& words) {
  GpeCommand command;
  std::memcpy(&command, words.data(), sizeof command);
  return command;
}

}  // namespace torch::comms::ctran
