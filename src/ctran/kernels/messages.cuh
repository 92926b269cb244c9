#pragma once

#include "ctran/kernels/bytes.cuh"
#include "ctran/kernels/messages.hpp"
#include "ctran/kernels/wires.cuh"

// What one block does for the messages of a pair and direction. Of its warps, all but the last are
// movers: they move data. The last one is the courier, which waits for flags and tells them.
//
// Every block goes through its work in the order of messages, and of channels within each; so does
// the other side, on however many blocks. Of all that is not done, the first has both its sides at
// work: nothing waits for ever.
namespace torch::comms::ctran::kernels {

using MessageMover = ChunkMover<kChannelWarps * kWarp, kChunk>;

// What the warps of a block share.
struct Standing {
  Progress own;    // what this rank has sent, or taken
  Progress taken;  // of sends: what the peer has taken, as far as it is known
  // Of the message and channel that the block is at: how many chunks the movers may move, and how
  // many each of their warps has moved.
  uint32_t granted;
  uint32_t moved[kChannelWarps];
};

class Carrier {
 public:
  __device__ Carrier(const ExchangeParams& p, const Session& s, const Route& route, Standing& known)
      : p_(p),
        s_(s),
        known_(known),
        peer_(route.peer),
        receives_(route.receives),
        here_(mailbox(p.rank, peer_)),
        there_(mailbox(peer_, p.rank)) {}

  // Brings what the workspace has of the route, and back what `block` of so many is in charge of.
  __device__ __forceinline__ void recall() const {
    recall(known_.own, receives_ ? here_.taken : here_.sent, 0);
    if (!receives_) recall(known_.taken, here_.taken_by_peer, kChannelWarps * kWarp / 2);
    if (is_courier()) grant_nothing();
  }
  __device__ __forceinline__ void note(int block, int blocks) const {
    Progress& to = receives_ ? here_.taken : here_.sent;
    const int i = static_cast<int>(threadIdx.x);
    if (i == 0 && block == 0) store_relaxed(&to.messages, known_.own.messages);
    if (i < kChunkChannels && i % blocks == block)
      store_relaxed(&to.chunks[i], known_.own.chunks[i]);
    const int channel = i / kChannelWarps, warp = i % kChannelWarps;
    if (channel < kLineChannels && channel % blocks == block)
      store_relaxed(&to.tiles[channel][warp], known_.own.tiles[channel][warp]);
  }

  // For all threads of the block: what a channel carries of a message. False if the launch has to
  // stop.
  __device__ __forceinline__ bool carry(const Parcel& parcel, int channel) const {
    if (parcel.lines) return carry_lines(parcel, channel);
    return receives_ ? receive_chunks(parcel, channel) : send_chunks(parcel, channel);
  }

 private:
  static constexpr int kWords = static_cast<int>(sizeof(Progress) / sizeof(uint64_t));

  __device__ __forceinline__ Mailbox& mailbox(int owner, int peer) const {
    return *reinterpret_cast<Mailbox*>(p_.workspace[owner] + p_.mailboxes +
                                       mailbox_offset(owner, peer));
  }
  __device__ __forceinline__ static void recall(Progress& to, const Progress& from, int first) {
    const int i = static_cast<int>(threadIdx.x) - first;
    if (i >= 0 && i < kWords)
      reinterpret_cast<uint64_t*>(&to)[i] =
          load_relaxed(reinterpret_cast<const uint64_t*>(&from) + i);
  }
  __device__ __forceinline__ static bool is_courier() {
    return threadIdx.x / kWarp == kChannelWarps;
  }
  __device__ __forceinline__ static uint32_t lane() { return threadIdx.x % kWarp; }

  // For a warp: waits until the peer's counter says that one more has room in a ring.
  __device__ __forceinline__ bool wait_for_room(const uint64_t& counter, uint64_t sent,
                                                uint64_t& taken, uint64_t ring) const {
    for (Patience patience; !has_room(sent, taken, ring);) {
      taken = __shfl_sync(~0u, load_acquire(&counter), 0);
      if (patience.is_over(p_, s_, peer_)) return false;
    }
    return true;
  }

  // For the courier, once a message: its size goes to the peer, or is held against the peer's.
  __device__ __forceinline__ bool send_head(size_t bytes) const {
    const uint64_t before = known_.own.messages;
    uint64_t taken = known_.taken.messages;
    if (!wait_for_room(here_.taken_by_peer.messages, before, taken, kHeadRing)) return false;
    if (lane() == 0) {
      const uint32_t number = head_number(before);
      store_volatile(reinterpret_cast<char*>(&there_.heads[before % kHeadRing]),
                     Vector16{static_cast<uint32_t>(bytes), number,
                              static_cast<uint32_t>(bytes >> 32), number});
      known_.own.messages = before + 1;
      known_.taken.messages = taken;
    }
    __syncwarp();
    return true;
  }
  __device__ __forceinline__ bool check_head(size_t bytes) const {
    const uint64_t before = known_.own.messages;
    const uint32_t number = head_number(before);
    const char* from = reinterpret_cast<const char*>(&here_.heads[before % kHeadRing]);
    Vector16 head = load_volatile(from);
    for (Patience patience; !__all_sync(~0u, head.y == number && head.w == number);) {
      if (patience.is_over(p_, s_, peer_)) return false;
      head = load_volatile(from);
    }
    const bool is_right = (uint64_t{head.z} << 32 | head.x) == bytes;
    if (lane() == 0) {
      if (is_right) {
        known_.own.messages = before + 1;
        store_relaxed(&there_.taken_by_peer.messages, before + 1);
      } else {
        stop(p_, s_, Stop::kMismatch, peer_);
        store_relaxed(&header_of(p_, peer_).mismatched, uint64_t(p_.rank) + 1);
      }
    }
    __syncwarp();
    return is_right;
  }
  __device__ __forceinline__ bool tell_head(const Parcel& parcel, int channel) const {
    if (channel != 0) return true;
    return receives_ ? check_head(parcel.bytes) : send_head(parcel.bytes);
  }

  __device__ __forceinline__ bool carry_lines(const Parcel& parcel, int channel) const {
    const bool done = is_courier() ? tell_head(parcel, channel)
                      : receives_  ? receive_tiles(parcel, channel)
                                   : send_tiles(parcel, channel);
    return __syncthreads_or(!done) == 0;
  }

  __device__ __forceinline__ char* tile(int owner, int peer, int channel, int warp,
                                        uint64_t number) const {
    return p_.workspace[owner] + p_.tiles + tile_offset(owner, peer, channel, warp, number) +
           lane() * 16;
  }
  // The vectors of a tile are 480 bytes of the message each.
  static constexpr size_t kRow = kLineTile / kLineVectors;

  // For a warp of movers.
  __device__ __forceinline__ bool send_tiles(const Parcel& parcel, int channel) const {
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    uint64_t& sent = known_.own.tiles[channel][warp];
    const size_t stride = size_t{parcel.channels} * kChannelWarps * kLineTile;
    uint64_t number = sent, taken = known_.taken.tiles[channel][warp];
    for (size_t at = (channel * kChannelWarps + warp) * kLineTile; at < parcel.bytes;
         at += stride, ++number) {
      Vector16 v[kLineVectors];
#pragma unroll
      for (int k = 0; k < kLineVectors; ++k)
        v[k] = load_bytes(parcel.data + at + k * kRow + line_offset(lane(), false),
                          parcel.data + parcel.bytes);
      if (!wait_for_room(here_.taken_by_peer.tiles[channel][warp], number, taken, kTileRing))
        return false;
      char* const to = tile(peer_, p_.rank, channel, warp, number);
#pragma unroll
      for (int k = 0; k < kLineVectors; ++k)
        if (at + k * kRow < parcel.bytes) put_line(to + k * 512, lane(), v[k], number + 1);
    }
    __syncwarp();
    if (lane() == 0) {
      sent = number;
      known_.taken.tiles[channel][warp] = taken;
    }
    return true;
  }
  __device__ __forceinline__ bool receive_tiles(const Parcel& parcel, int channel) const {
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    uint64_t& taken = known_.own.tiles[channel][warp];
    const size_t stride = size_t{parcel.channels} * kChannelWarps * kLineTile;
    uint64_t number = taken;
    for (size_t at = (channel * kChannelWarps + warp) * kLineTile; at < parcel.bytes;
         at += stride) {
      const char* from = tile(p_.rank, peer_, channel, warp, number);
      ++number;
      Vector16 v[kLineVectors];
      for (Patience patience;;) {
        bool landed = true;
#pragma unroll
        for (int k = 0; k < kLineVectors; ++k)
          if (at + k * kRow < parcel.bytes) {
            v[k] = look_at_line(from + k * 512);
            landed = landed && has_flag(v[k], lane(), number);
          }
        if (__all_sync(~0u, landed)) break;
        if (patience.is_over(p_, s_, peer_)) return false;
      }
#pragma unroll
      for (int k = 0; k < kLineVectors; ++k) {
        const size_t first = at + k * kRow + line_offset(lane(), false);
        if (first >= parcel.bytes) continue;
        const size_t left = parcel.bytes - first, width = line_width(lane());
        store_bytes(parcel.data + first, v[k], static_cast<int>(left < width ? left : width));
      }
      __syncwarp();
      if (lane() == 0) store_relaxed(&there_.taken_by_peer.tiles[channel][warp], number);
    }
    __syncwarp();
    if (lane() == 0) taken = number;
    return true;
  }

  __device__ __forceinline__ char* chunk(int owner, int peer, int channel, uint64_t number) const {
    return p_.workspace[owner] + p_.chunks + chunk_offset(p_.size, owner, peer, channel, number);
  }
  __device__ __forceinline__ static uint32_t chunks_of(const Parcel& parcel, int channel) {
    return static_cast<uint32_t>(
        pieces_of(quotient_up(parcel.bytes, parcel.piece), parcel.channels, channel));
  }
  // Chunk i of a channel.
  struct Piece {
    size_t at;
    uint32_t bytes;
  };
  __device__ __forceinline__ static Piece piece_of(const Parcel& parcel, int channel, uint32_t i) {
    const size_t at = (size_t{i} * parcel.channels + channel) * parcel.piece,
                 left = parcel.bytes - at;
    return {at, left < parcel.piece ? static_cast<uint32_t>(left) : parcel.piece};
  }

  // Movers go ahead as far as the courier lets them, each warp at its own pace. The courier tells
  // the peer what all of them have moved: as much as there is, since the fence before it takes its
  // time.
  static constexpr uint32_t kNoMore = ~0u;

  __device__ __forceinline__ void grant_nothing() const {
    if (lane() < kChannelWarps) known_.moved[lane()] = 0;
    if (lane() == 0) known_.granted = 0;
  }
  // For a warp of movers: waits until it may move chunk i.
  __device__ __forceinline__ bool may_move(uint32_t i) const {
    uint32_t granted = look(known_.granted);
    while (granted <= i) granted = look(known_.granted);
    fence_block();
    return __all_sync(~0u, granted != kNoMore);
  }
  __device__ __forceinline__ void has_moved(uint32_t chunks) const {
    fence_block();
    __syncwarp();
    if (lane() == 0) tell(known_.moved[threadIdx.x / kWarp], chunks);
  }
  // For the courier. `granted` says how many chunks may be moved, now that the
  // peer has been told of so many; `tell_peer` tells it.
  template <class Granted, class Tell>
  __device__ __forceinline__ bool oversee(uint32_t count, Granted granted, Tell tell_peer) const {
    uint32_t allowed = 0, told = 0;
    for (Patience patience; told < count;) {
      if (allowed < count) {
        allowed = granted(told);
        fence_block();
        if (lane() == 0) tell(known_.granted, allowed);
      }
      uint32_t moved = lane() < kChannelWarps ? look(known_.moved[lane()]) : count;
      moved = __reduce_min_sync(~0u, moved);
      if (moved > told) {
        told = moved;
        if (lane() == 0) tell_peer(told);
        __syncwarp();
      } else if (patience.is_over(p_, s_, peer_)) {
        return false;
      }
    }
    return true;
  }
  // What both do when they have gone through it.
  __device__ __forceinline__ bool finish_chunks(bool done, int channel, uint64_t chunks) const {
    if (is_courier()) {
      if (lane() == 0) known_.own.chunks[channel] = chunks;
      if (done)
        grant_nothing();
      else if (lane() == 0)
        tell(known_.granted, kNoMore);
    }
    return __syncthreads_or(!done) == 0;
  }
  __device__ __forceinline__ static uint32_t least(uint64_t chunks, uint32_t count) {
    return chunks < count ? static_cast<uint32_t>(chunks) : count;
  }

  __device__ __forceinline__ bool send_chunks(const Parcel& parcel, int channel) const {
    const uint32_t count = chunks_of(parcel, channel);
    const uint64_t before = known_.own.chunks[channel];
    bool done = true;
    if (is_courier()) {
      const auto ring = static_cast<uint64_t>(chunk_ring(p_.size));
      uint64_t taken = known_.taken.chunks[channel];
      const auto granted = [&](uint32_t told) {
        // Seldom, while there is enough.
        const bool suffices =
            has_room(before + count - 1, taken, ring) || has_room(before + told, taken, ring / 2);
        if (!suffices)
          taken = __shfl_sync(~0u, load_acquire(&here_.taken_by_peer.chunks[channel]), 0);
        return least(taken + ring - before, count);
      };
      done = tell_head(parcel, channel) && oversee(count, granted, [&](uint32_t moved) {
               fence_release();
               store_relaxed(&there_.chunks[channel].value, before + moved);
             });
      if (lane() == 0) known_.taken.chunks[channel] = taken;
    } else {
      MessageMover mover;
      const auto load = [&](uint32_t i) {
        const Piece piece = piece_of(parcel, channel, i);
        mover.load(parcel.data + piece.at, piece.bytes);
      };
      if (count > 0) load(0);
      for (uint32_t i = 0; done && i < count; ++i) {
        done = may_move(i);
        if (!done) break;
        mover.put(chunk(peer_, p_.rank, channel, before + i));
        has_moved(i + 1);
        if (i + 1 < count) load(i + 1);
      }
    }
    return finish_chunks(done, channel, before + count);
  }
  __device__ __forceinline__ bool receive_chunks(const Parcel& parcel, int channel) const {
    const uint32_t count = chunks_of(parcel, channel);
    const uint64_t before = known_.own.chunks[channel];
    bool done = true;
    if (is_courier()) {
      const auto granted = [&](uint32_t) {
        const uint64_t sent = load_acquire(&here_.chunks[channel].value);
        return least(__shfl_sync(~0u, sent, 0) - before, count);
      };
      done = tell_head(parcel, channel) && oversee(count, granted, [&](uint32_t moved) {
               store_relaxed(&there_.taken_by_peer.chunks[channel], before + moved);
             });
    } else {
      for (uint32_t i = 0; done && i < count; ++i) {
        done = may_move(i);
        if (!done) break;
        const Piece piece = piece_of(parcel, channel, i);
        MessageMover::take(parcel.data + piece.at, chunk(p_.rank, peer_, channel, before + i),
                           piece.bytes);
        has_moved(i + 1);
      }
    }
    return finish_chunks(done, channel, before + count);
  }

  const ExchangeParams& p_;
  const Session& s_;
  Standing& known_;
  const int peer_;
  const bool receives_;
  Mailbox& here_;
  Mailbox& there_;
};

}  // namespace torch::comms::ctran::kernels
