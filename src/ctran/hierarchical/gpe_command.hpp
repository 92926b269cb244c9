#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "ctran/kernels/protocol/host_ring.hpp"
#include "ctran/reduction/dtype.hpp"

namespace torch::comms::ctran {

// What the host does for one chunk: an operation among the ranks of a rail, on staging memory.
struct GpeCommand {
  enum class Kind : uint8_t { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kBarrier };
  Kind kind;
  Dtype dtype;
  ReduceOpCode op;
  uint8_t reserved;
  int32_t root;    // of the rail
  uint64_t begin;  // bytes, in the staging memory, where the operation is in place
  // Elements: of a reduce_scatter's or all_gather's part, else of all of it.
  uint64_t count;
  uint64_t timeout_ms;  // from when the host begins
  uint64_t chunk;       // which of the operation's it is, for errors
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
