#include "ctran/kernels/messages.hpp"

#include <algorithm>
#include <bit>

#include "ctran/kernels/plan.hpp"

namespace torch::comms::ctran::kernels {
namespace {

constexpr size_t kKB = 1024, kMB = 1024 * kKB;

// The first row for so many bytes counts. Lines need no fence, but not all of what they move is
// data. One channel of them has a tile for each of its warps; more tiles, one after the other in a
// warp, share a few blocks until there is work for many. By the model of hops and bytes, not
// measured.
struct Row {
  size_t bytes;
  bool lines;
  int channels;
};
constexpr Row kRows[] = {
    {kChannelWarps * kLineTile, true, 1},
    {kChannelWarps * kLineTile * 4, true, 2},
    {256 * kKB, true, 4},
    {4 * kMB, false, 8},
    {SIZE_MAX, false, 16},
};
// A chunk: so many a channel, where that leaves them long enough.
constexpr size_t kChunksEach = 4, kLeastChunk = 8 * kKB;

// The place of a pair and direction among all that a rank can have, sends first.
int index_of(const Message& message) {
  return message.peer + (message.receives != 0 ? kMaxRanks : 0);
}

}  // namespace

Manner manner_of(size_t bytes) {
  const Row& row = *std::ranges::find_if(kRows, [&](const Row& r) { return bytes <= r.bytes; });
  if (row.lines) return {true, row.channels, static_cast<uint32_t>(kLineTile)};
  const size_t even = quotient_up(bytes, static_cast<size_t>(row.channels) * kChunksEach);
  const size_t chunk = std::clamp(quotient_up(even, kKB) * kKB, kLeastChunk, kChunk);
  return {false, row.channels, static_cast<uint32_t>(chunk)};
}

ExchangeParams params_of(const Team& team, const Exchange& exchange, int most_blocks) {
  ExchangeParams p{};
  static_cast<Membership&>(p) = membership_of(team, Collective::kExchange, exchange.limit_ns);
  const MessageLayout layout(team.size);
  p.mailboxes = layout.mailboxes;
  p.tiles = layout.tiles;
  p.chunks = layout.chunks;
  const Message* const begin = exchange.messages;
  const Message* const end = begin + exchange.count;

  int filled = 0;
  for (int index = 0; index < 2 * kMaxRanks; ++index) {
    Route route{};
    route.first = static_cast<uint8_t>(filled);
    for (const Message* message = begin; message != end; ++message) {
      if (index_of(*message) != index) continue;
      const Manner manner = manner_of(message->bytes);
      p.parcels[filled++] = {static_cast<char*>(message->data), message->bytes, manner.piece,
                             static_cast<uint16_t>(manner.channels), manner.lines};
      route.blocks = std::max(route.blocks, static_cast<uint8_t>(manner.channels));
    }
    route.end = static_cast<uint8_t>(filled);
    if (route.first == route.end) continue;
    route.peer = static_cast<int16_t>(index % kMaxRanks);
    route.receives = index >= kMaxRanks;
    p.routes[p.routes_count++] = route;
  }

  // A power of two, as the channels are, so that all blocks have as much to do.
  const auto each =
      static_cast<unsigned>(std::min(most_blocks, kMostExchangeBlocks) / p.routes_count);
  const int even = static_cast<int>(std::bit_floor(std::max(each, 1u)));
  const int most = exchange.blocks == 0 ? even : std::min(even, exchange.blocks);
  for (int r = 0; r < p.routes_count; ++r) {
    Route& route = p.routes[r];
    route.blocks = static_cast<uint8_t>(std::min<int>(route.blocks, most));
    route.first_block = static_cast<int16_t>(p.blocks);
    p.blocks += route.blocks;
  }
  return p;
}

}  // namespace torch::comms::ctran::kernels
