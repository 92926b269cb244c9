#pragma once

#include <type_traits>

#include "ctran/kernels/messages/message_chunks.cuh"
#include "ctran/kernels/messages/message_tiles.cuh"

// What kernels of messages have in common: each has the code for its kind alone, since code costs
// registers, and a launch fetches it anew. Every block goes through its work in the order
// of messages, and of channels within each; so does the other side, on however many blocks. Of all
// that is not done, the first has both its sides at work: nothing waits for ever.
namespace torch::comms::ctran::kernels {

template <MessageKind kKind>
using Chunks = MessageChunks<kKind == MessageKind::kZeroCopy>;
// What reads ahead: of what is not lean, what is large.
template <MessageKind kKind>
using PrefetchSource =
    std::conditional_t<kKind == MessageKind::kLean, MessageTiles<true>, Chunks<kKind>>;

__device__ __forceinline__ const MessageRoute& route_of(const MessageParams& p) {
  int r = 0;
  while (r + 1 < p.routes_count && p.routes[r + 1].first_block <= static_cast<int>(blockIdx.x)) ++r;
  return p.routes[r];
}

// For one thread: reads the number of the launch, and whether there is to be one.
__device__ __forceinline__ void begin_exchange(const MessageParams& p, LaunchContext& s) {
  begin_concurrent(p, s, load_relaxed(&header_of(p, p.rank).exchanges) + 1);
}
// For one thread of each block, when all of the block know the number, which may be counted up once
// all blocks do. Nobody waits for this.
__device__ __forceinline__ uint32_t take_ticket(const MessageParams& p) {
  return atomicInc(&header_of(p, p.rank).ticket, gridDim.x - 1);
}
__device__ __forceinline__ void end_exchange(const MessageParams& p, const LaunchContext& s,
                                             uint32_t ticket) {
  if (ticket == gridDim.x - 1) header_of(p, p.rank).exchanges = s.launch;
}

// For all threads of a block: its channels of a message, of which there are `before` in the launch
// before it. False if the launch has to stop.
template <MessageKind kKind>
__device__ __forceinline__ bool transfer(const Connection& connection,
                                         const MessageTransfer& parcel, int before,
                                         typename PrefetchSource<kKind>::Prefetched& ahead) {
  bool done = true;
  for (int channel = connection.block; done && channel < parcel.channels;
       channel += connection.blocks) {
    if constexpr (kKind == MessageKind::kLean) {
      done = MessageTiles<true>(connection).transfer(parcel, before, channel, ahead);
    } else if (parcel.is_ll128) {
      MessageTiles<false>::Prefetched nothing{};
      done = MessageTiles<false>(connection).transfer(parcel, before, channel, nothing);
    } else {
      done = Chunks<kKind>(connection).transfer(parcel, before, channel, ahead);
    }
  }
  return done;
}

}  // namespace torch::comms::ctran::kernels
