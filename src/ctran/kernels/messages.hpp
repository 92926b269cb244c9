#pragma once

#include "ctran/kernels/message_layout.hpp"
#include "ctran/kernels/params.hpp"
#include "ctran/kernels/tiling.hpp"

// Messages as the kernel understands them: pure functions of a launch.
namespace torch::comms::ctran::kernels {

// Whether the message makes sense on this rank.
constexpr bool is_sound(const Team& team, const Message& message) {
  return message.peer >= 0 && message.peer < team.size && message.peer != team.rank &&
         (message.data != nullptr || message.bytes == 0);
}
constexpr bool is_sound(const Team& team, const Exchange& exchange) {
  if (exchange.count < 1 || exchange.count > kMaxMessages || exchange.blocks < 0) return false;
  for (int32_t i = 0; i < exchange.count; ++i)
    if (!is_sound(team, exchange.messages[i])) return false;
  return true;
}

// How a message travels. Both sides know it from the size alone.
struct Manner {
  bool lines;      // else chunks
  int channels;    // its pieces go to them in turn: tiles to their warps, chunks
  uint32_t piece;  // bytes of a tile or chunk

  constexpr int workers() const { return lines ? channels * kChannelWarps : channels; }
};
Manner manner_of(size_t bytes);

// Of `pieces` that go to `workers` in turn, how many one of them has.
constexpr uint64_t pieces_of(uint64_t pieces, int workers, int worker) {
  const auto all = static_cast<uint64_t>(workers), own = static_cast<uint64_t>(worker);
  return pieces <= own ? 0 : (pieces - own + all - 1) / all;
}

// A side of a message, and a pair and direction: all of its messages, and the blocks of the launch
// that work for it.
struct Parcel {
  char* data;
  size_t bytes;
  uint32_t piece;
  uint16_t channels;
  bool lines;
};
struct Route {
  int16_t peer;
  bool receives;
  uint8_t first, end;  // parcels
  uint8_t blocks;
  int16_t first_block;
};
inline constexpr int kMaxRoutes = 2 * (kMaxRanks - 1);
// A block for each channel, at most so many of a launch.
inline constexpr int kMostExchangeBlocks = 112;
inline constexpr int kExchangeThreads = (kChannelWarps + 1) * kWarp;

// What the kernel is given.
struct ExchangeParams : Membership {
  size_t mailboxes, tiles, chunks;  // in the workspaces
  int32_t routes_count, blocks;
  Route routes[kMaxRoutes];
  Parcel parcels[kMaxMessages];
};
static_assert(sizeof(ExchangeParams) <= 4096, "a kernel's parameters");

// Of an exchange that is sound. `most_blocks`: that are on the GPU at once, at least 2 * (size -
// 1).
ExchangeParams params_of(const Team& team, const Exchange& exchange, int most_blocks);

}  // namespace torch::comms::ctran::kernels
