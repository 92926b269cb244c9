#include "ctran/kernels/messages/messages.hpp"

#include <algorithm>
#include <bit>

#include "ctran/kernels/host/launch_plan.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"

namespace torch::comms::ctran::kernels {
namespace {

// Returns the index of a pair and direction among all that a rank can have, sends first.
int index_of(const KernelMessage& message) {
  return message.peer + (message.is_receive != 0 ? kMaxRanks : 0);
}

}  // namespace

MessageParams message_params_of(const TeamDescriptor& team, Collective collective,
                                uint64_t limit_ns) {
  MessageParams p{};
  static_cast<TeamView&>(p) = team_view_of(team, collective, limit_ns);
  const WorkspaceLayout layout(team.size);
  p.mailboxes = layout.mailboxes;
  p.tiles = layout.tiles;
  p.chunks = layout.rings(team.size, team.is_partial != 0);
  p.copy_warps = kChannelWarps;
  return p;
}

void assign_blocks(MessageParams& p, int wanted, int most_blocks) {
  // Blocks of a route are a power of two, as its channels are, so that all blocks have the same
  // work.
  const auto each =
      static_cast<unsigned>(std::min(most_blocks, kMostExchangeBlocks) / p.routes_count);
  const int even = static_cast<int>(std::bit_floor(std::max(each, 1u)));
  const int most = wanted == 0 ? even : std::min(even, wanted);
  for (int r = 0; r < p.routes_count; ++r) {
    MessageRoute& route = p.routes[r];
    route.blocks = static_cast<uint8_t>(std::min<int>(route.channels, most));
    route.first_block = static_cast<int16_t>(p.blocks);
    p.blocks += route.blocks;
  }
}

ExchangeParams params_of(const TeamDescriptor& team, const MessageExchange& exchange,
                         int most_blocks) {
  ExchangeParams p{};
  static_cast<MessageParams&>(p) =
      message_params_of(team, Collective::kExchange, exchange.timeout_ns);
  const KernelMessage* const begin = exchange.messages;
  const KernelMessage* const end = begin + exchange.count;

  int filled = 0;
  bool lean = true;
  size_t tiles = 0;  // most LL128 tiles that a channel has of a message
  for (int index = 0; index < 2 * kMaxRanks; ++index) {
    MessageRoute route{};
    route.first = static_cast<uint8_t>(filled);
    for (const KernelMessage* message = begin; message != end; ++message) {
      if (index_of(*message) != index) continue;
      const MessageTransfer& msg = p.transfers[filled++] =
          transfer_of(static_cast<char*>(message->data), message->bytes,
                      static_cast<char*>(message->zero_copy_target), message->requests_zero_copy);
      lean = lean && is_lean(msg);
      if (msg.zero_copy_target != nullptr || msg.requests_zero_copy)
        p.kind = MessageKind::kZeroCopy;
      route.channels = std::max(route.channels, static_cast<uint8_t>(msg.channels));
      if (msg.is_ll128)
        tiles = std::max(tiles, quotient_up(quotient_up(msg.bytes, kLL128Tile), msg.channels));
    }
    route.end = static_cast<uint8_t>(filled);
    if (route.first == route.end) continue;
    route.peer = static_cast<int16_t>(index % kMaxRanks);
    route.is_receive = index >= kMaxRanks;
    p.routes[p.routes_count++] = route;
  }

  if (lean) {
    p.kind = MessageKind::kLean;
    p.copy_warps = static_cast<int32_t>(std::clamp<size_t>(tiles, 1, kChannelWarps));
  }
  assign_blocks(p, exchange.blocks, most_blocks);
  return p;
}

}  // namespace torch::comms::ctran::kernels
