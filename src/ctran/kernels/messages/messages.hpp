#pragma once

#include "ctran/kernels/messages/message_kind.hpp"
#include "ctran/kernels/messages/message_layout.hpp"
#include "ctran/kernels/protocol/params.hpp"
#include "ctran/kernels/protocol/tiling.hpp"

// Prepares the launch of messages: pure functions of the exchange.
namespace torch::comms::ctran::kernels {

// Whether the message makes sense on this rank.
constexpr bool is_valid(const TeamDescriptor& team, const KernelMessage& message) {
  return message.peer >= 0 && message.peer < team.size && message.peer != team.rank &&
         (message.data != nullptr || message.bytes == 0);
}
constexpr bool is_valid(const TeamDescriptor& team, const MessageExchange& exchange) {
  if (exchange.count < 1 || exchange.count > kMaxMessages || exchange.blocks < 0) return false;
  for (int32_t i = 0; i < exchange.count; ++i)
    if (!is_valid(team, exchange.messages[i])) return false;
  return true;
}

// Larger messages use chunks. LL128 needs no fence, but not all of what it moves is data. A message
// of 4 MB takes 18.2 us by LL128, and about 20.5 us by chunks (four H100).
inline constexpr size_t kLL128MaxBytes = size_t{4} << 20;

// How a message travels. Both sides derive it from the size alone.
struct KernelMessageProtocol {
  bool is_ll128;   // else chunks
  int channels;    // its pieces go to them in turn: tiles to their warps, or chunks
  uint32_t piece;  // bytes of a tile or chunk

  constexpr int workers() const { return is_ll128 ? channels * kChannelWarps : channels; }
};
constexpr KernelMessageProtocol protocol_of(size_t bytes) {
  // A channel has few tiles as long as there are more channels, so that many SMs have a little to
  // do. With four channels instead of 16 a message of 64 KB took 5.0 us instead of 3.4 (four H200).
  // The most channels are used only if each of 16 warps would have several tiles. With 16 channels
  // instead of 32 a message of 256 KB takes 4.6 us instead of 3.6. One of 1 MB takes 8.3 instead of
  // 5.9, one of 4 MB 21.4 instead of 18.2 (four H100). With 8 channels of chunks 4 MB took 24.8 us
  // instead of 19.2. With 32 channels whose rings are half as long 4 MB took 18.6 us. But 16 MB, as
  // parts to all ranks, took 43.3 us instead of 41.8 (four H200).
  constexpr size_t kFewTiles = 4, kChunksEach = 4, kKB = 1024;
  constexpr int kMany = 16;
  if (bytes <= kLL128MaxBytes) {
    int channels = 1;
    while (channels < kMany && bytes > static_cast<size_t>(channels) * kFewTiles * kLL128Tile)
      channels *= 2;
    if (bytes > size_t{kMany} * kChannelWarps * kLL128Tile) channels = kLineChannels;
    return {true, channels, static_cast<uint32_t>(kLL128Tile)};
  }
  const size_t even = quotient_up(bytes, size_t{kChunkChannels} * kChunksEach),
               chunk = quotient_up(even, kKB) * kKB;
  return {false, kChunkChannels, static_cast<uint32_t>(chunk < kChunk ? chunk : kChunk)};
}

// Returns how many of `pieces` one worker has, if they go to `workers` in turn.
constexpr uint64_t pieces_of(uint64_t pieces, int workers, int worker) {
  const auto all = static_cast<uint64_t>(workers), own = static_cast<uint64_t>(worker);
  return pieces <= own ? 0 : (pieces - own + all - 1) / all;
}

// One side of a message.
struct MessageTransfer {
  char* data;
  char* zero_copy_target;  // as in KernelMessage; null with LL128
  size_t bytes;
  uint32_t piece;
  uint16_t channels;
  bool is_ll128, requests_zero_copy;
};
constexpr MessageTransfer transfer_of(char* data, size_t bytes, char* zero_copy_target,
                                      bool requests_zero_copy) {
  const KernelMessageProtocol protocol = protocol_of(bytes);
  return {data,
          protocol.is_ll128 ? nullptr : zero_copy_target,
          bytes,
          protocol.piece,
          static_cast<uint16_t>(protocol.channels),
          protocol.is_ll128,
          requests_zero_copy && !protocol.is_ll128};
}
// A pair and direction: its messages, and the blocks of the launch that work for it.
struct MessageRoute {
  int16_t peer;
  bool is_receive;
  uint8_t first, end;  // range in ExchangeParams::transfers
  uint8_t channels;    // of its messages, at most
  uint8_t blocks;
  int16_t first_block;
};
inline constexpr int kMaxRoutes = 2 * (kMaxRanks - 1);
// The most blocks of a launch. A route has at most one block for each channel.
inline constexpr int kMostExchangeBlocks = 112;
inline constexpr int kExchangeThreads = (kChannelWarps + 1) * kWarp;  // at most

// Whether the message is LL128 of whole aligned vectors.
inline bool is_lean(const MessageTransfer& msg) {
  const auto at = reinterpret_cast<uintptr_t>(msg.data);
  return msg.is_ll128 && (at | msg.bytes) % 16 == 0;
}

// Where messages are in the workspaces, and which blocks work for which route.
struct MessageParams : TeamView {
  size_t mailboxes, tiles;
  ChunkRings chunks;
  int32_t routes_count, blocks;
  MessageKind kind;
  int32_t copy_warps;  // that move data in a block: fewer than all if no message has more tiles
  MessageRoute routes[kMaxRoutes];

  int threads() const { return (copy_warps + 1) * kWarp; }
};

// Parameters of the kernel.
struct ExchangeParams : MessageParams {
  MessageTransfer transfers[kMaxMessages];
};
static_assert(sizeof(ExchangeParams) <= 4096, "a kernel's parameters");

// Returns the parameters that all kernels of messages begin with; its routes are still to be added.
MessageParams message_params_of(const TeamDescriptor& team, Collective collective,
                                uint64_t limit_ns);
// Gives every route its blocks, at most one for each channel. `wanted`: blocks of each route; 0: as
// many as there are. `most_blocks`: blocks that are on the GPU at once, at least one for each
// route.
void assign_blocks(MessageParams& p, int wanted, int most_blocks);

// Returns the parameters of a valid exchange. `most_blocks`: blocks that are on the GPU at once, at
// least 2 * (size - 1).
ExchangeParams params_of(const TeamDescriptor& team, const MessageExchange& exchange,
                         int most_blocks);

}  // namespace torch::comms::ctran::kernels
