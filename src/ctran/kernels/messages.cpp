#include "ctran/kernels/messages.hpp"

#include <algorithm>
#include <bit>

#include "ctran/kernels/plan.hpp"
#include "ctran/kernels/workspace_layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

// The place of a pair and direction among all that a rank can have, sends first.
int index_of(const Message& message) {
  return message.peer + (message.receives != 0 ? kMaxRanks : 0);
}

}  // namespace

Postal postal_of(const Team& team, Collective collective, uint64_t limit_ns) {
  Postal p{};
  static_cast<Membership&>(p) = membership_of(team, collective, limit_ns);
  const WorkspaceLayout layout(team.size);
  p.mailboxes = layout.mailboxes;
  p.tiles = layout.tiles;
  p.chunks = layout.rings(team.size, team.lacks_rest != 0);
  p.movers = kChannelWarps;
  return p;
}

void share_blocks(Postal& p, int wanted, int most_blocks) {
  // A power of two, as the channels are, so that all blocks have as much to do.
  const auto each =
      static_cast<unsigned>(std::min(most_blocks, kMostExchangeBlocks) / p.routes_count);
  const int even = static_cast<int>(std::bit_floor(std::max(each, 1u)));
  const int most = wanted == 0 ? even : std::min(even, wanted);
  for (int r = 0; r < p.routes_count; ++r) {
    Route& route = p.routes[r];
    route.blocks = static_cast<uint8_t>(std::min<int>(route.channels, most));
    route.first_block = static_cast<int16_t>(p.blocks);
    p.blocks += route.blocks;
  }
}

ExchangeParams params_of(const Team& team, const Exchange& exchange, int most_blocks) {
  ExchangeParams p{};
  static_cast<Postal&>(p) = postal_of(team, Collective::kExchange, exchange.limit_ns);
  const Message* const begin = exchange.messages;
  const Message* const end = begin + exchange.count;

  int filled = 0;
  bool lean = true;
  size_t tiles = 0;  // of lines, that a channel has of a message
  for (int index = 0; index < 2 * kMaxRanks; ++index) {
    Route route{};
    route.first = static_cast<uint8_t>(filled);
    for (const Message* message = begin; message != end; ++message) {
      if (index_of(*message) != index) continue;
      const Parcel& parcel = p.parcels[filled++] =
          parcel_of(static_cast<char*>(message->data), message->bytes,
                    static_cast<char*>(message->place), message->asks);
      lean = lean && is_lean(parcel);
      if (parcel.place != nullptr || parcel.asks) p.kind = MessageKind::kStraight;
      route.channels = std::max(route.channels, static_cast<uint8_t>(parcel.channels));
      if (parcel.lines)
        tiles = std::max(tiles, quotient_up(quotient_up(parcel.bytes, kLineTile), parcel.channels));
    }
    route.end = static_cast<uint8_t>(filled);
    if (route.first == route.end) continue;
    route.peer = static_cast<int16_t>(index % kMaxRanks);
    route.receives = index >= kMaxRanks;
    p.routes[p.routes_count++] = route;
  }

  if (lean) {
    p.kind = MessageKind::kLean;
    p.movers = static_cast<int32_t>(std::clamp<size_t>(tiles, 1, kChannelWarps));
  }
  share_blocks(p, exchange.blocks, most_blocks);
  return p;
}

}  // namespace torch::comms::ctran::kernels
