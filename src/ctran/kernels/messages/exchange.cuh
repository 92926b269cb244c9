#pragma once

#include <type_traits>

#include "ctran/kernels/messages/message_chunks.cuh"
#include "ctran/kernels/messages/message_tiles.cuh"

// What the kernels of messages share. Each kernel has the code of its kind alone, because code
// costs registers, and every launch fetches it again.
//
// Every block works in the order of messages, and of channels within each message. The peer does
// the same, on any number of blocks. The first message that is not complete thus has both its sides
// at work, so there is no deadlock.
namespace torch::comms::ctran::kernels {

template <MessageKind kKind>
using Chunks = MessageChunks<kKind == MessageKind::kZeroCopy>;
// What prefetches: tiles in a lean kernel, else chunks.
template <MessageKind kKind>
using PrefetchSource =
    std::conditional_t<kKind == MessageKind::kLean, MessageTiles<true>, Chunks<kKind>>;

__device__ __forceinline__ const MessageRoute& route_of(const MessageParams& p) {
  int r = 0;
  while (r + 1 < p.routes_count && p.routes[r + 1].first_block <= static_cast<int>(blockIdx.x)) ++r;
  return p.routes[r];
}

// Reads the number of the launch, and whether it has to stop already. For one thread.
__device__ __forceinline__ void begin_exchange(const MessageParams& p, LaunchContext& s) {
  begin_concurrent(p, s, load_relaxed(&header_of(p, p.rank).exchanges) + 1);
}
// Call it in one thread of each block when the whole block knows the launch number. The last
// block's end_exchange() increments the number. No thread waits for this.
__device__ __forceinline__ uint32_t take_ticket(const MessageParams& p) {
  return atomicInc(&header_of(p, p.rank).ticket, gridDim.x - 1);
}
__device__ __forceinline__ void end_exchange(const MessageParams& p, const LaunchContext& s,
                                             uint32_t ticket) {
  if (ticket == gridDim.x - 1) header_of(p, p.rank).exchanges = s.launch;
}

// Transfers this block's channels of a message. `before`: messages of the route earlier in the
// launch. For all threads of a block.
// Returns: false if the launch has to stop.
template <MessageKind kKind>
__device__ __forceinline__ bool transfer(const Connection& connection, const MessageTransfer& msg,
                                         int before,
                                         typename PrefetchSource<kKind>::Prefetched& ahead) {
  bool done = true;
  for (int channel = connection.block; done && channel < msg.channels;
       channel += connection.blocks) {
    if constexpr (kKind == MessageKind::kLean) {
      done = MessageTiles<true>(connection).transfer(msg, before, channel, ahead);
    } else if (msg.is_ll128) {
      MessageTiles<false>::Prefetched nothing{};
      done = MessageTiles<false>(connection).transfer(msg, before, channel, nothing);
    } else {
      done = Chunks<kKind>(connection).transfer(msg, before, channel, ahead);
    }
  }
  return done;
}

}  // namespace torch::comms::ctran::kernels
