#pragma once

#include "ctran/kernels/messages.hpp"
#include "ctran/kernels/wires.cuh"

namespace torch::comms::ctran::kernels {

// Of a block's warps, all but the last are movers: they move data. The last one is the courier,
// which waits for flags and tells them.
__device__ __forceinline__ bool is_courier() { return threadIdx.x / kWarp == kChannelWarps; }
__device__ __forceinline__ uint32_t lane_of_warp() { return threadIdx.x % kWarp; }

// What the warps of a block share.
struct Standing {
  Progress own;    // what this rank has sent, or taken
  Progress taken;  // of sends: what the peer has taken, as far as it is known
  // Of the message and channel that the block is at: how many chunks the movers may move, and how
  // many each of their warps has moved.
  uint32_t granted;
  uint32_t moved[kChannelWarps];

  // For the courier, while no mover is at work.
  __device__ __forceinline__ void grant_nothing() {
    if (lane_of_warp() < kChannelWarps) moved[lane_of_warp()] = 0;
    if (lane_of_warp() == 0) granted = 0;
  }
};

// A pair and direction as one block sees it: where its counters are, and the heads of its messages.
struct Connection {
  const Postal& p;
  const Session& s;
  Standing& known;
  const int peer;
  const bool receives;
  Mailbox& here;
  Mailbox& there;

  __device__ Connection(const Postal& params, const Session& session, const Route& route,
                        Standing& standing)
      : p(params),
        s(session),
        known(standing),
        peer(route.peer),
        receives(route.receives),
        here(mailbox(p.rank, peer)),
        there(mailbox(peer, p.rank)) {}

  // Brings what the workspace has of the route, and back what `block` of so many is in charge of.
  __device__ __forceinline__ void recall() const {
    recall(known.own, receives ? here.taken : here.sent, 0);
    if (!receives) recall(known.taken, here.taken_by_peer, kChannelWarps * kWarp / 2);
    if (is_courier()) known.grant_nothing();
  }
  __device__ __forceinline__ void note(int block, int blocks) const {
    Progress& to = receives ? here.taken : here.sent;
    const int i = static_cast<int>(threadIdx.x);
    if (i == 0 && block == 0) store_relaxed(&to.messages, known.own.messages);
    if (i < kChunkChannels && i % blocks == block)
      store_relaxed(&to.chunks[i], known.own.chunks[i]);
    const int channel = i / kChannelWarps, warp = i % kChannelWarps;
    if (channel < kLineChannels && channel % blocks == block)
      store_relaxed(&to.tiles[channel][warp], known.own.tiles[channel][warp]);
  }

  // For a warp: waits until the peer's counter says that one more has room in a ring.
  __device__ __forceinline__ bool wait_for_room(const uint64_t& counter, uint64_t sent,
                                                uint64_t& taken, uint64_t ring) const {
    for (Patience patience; !has_room(sent, taken, ring);) {
      taken = __shfl_sync(~0u, load_acquire(&counter), 0);
      if (patience.is_over(p, s, peer)) return false;
    }
    return true;
  }

  // For the courier: a channel of a message begins. With the first one its size goes to the peer,
  // or is held against the peer's. False if the launch has to stop.
  __device__ __forceinline__ bool tell_head(const Parcel& parcel, int channel) const {
    if (channel != 0) return true;
    return receives ? check_head(parcel.bytes) : send_head(parcel.bytes);
  }

 private:
  static constexpr int kWords = static_cast<int>(sizeof(Progress) / sizeof(uint64_t));

  __device__ __forceinline__ Mailbox& mailbox(int owner, int other) const {
    return *reinterpret_cast<Mailbox*>(p.workspace[owner] + p.mailboxes +
                                       mailbox_offset(owner, other));
  }
  __device__ __forceinline__ static void recall(Progress& to, const Progress& from, int first) {
    const int i = static_cast<int>(threadIdx.x) - first;
    if (i >= 0 && i < kWords)
      reinterpret_cast<uint64_t*>(&to)[i] =
          load_relaxed(reinterpret_cast<const uint64_t*>(&from) + i);
  }
  __device__ __forceinline__ bool send_head(size_t bytes) const {
    const uint64_t before = known.own.messages;
    uint64_t taken = known.taken.messages;
    if (!wait_for_room(here.taken_by_peer.messages, before, taken, kHeadRing)) return false;
    if (lane_of_warp() == 0) {
      const uint32_t number = head_number(before);
      store_volatile(reinterpret_cast<char*>(&there.heads[before % kHeadRing]),
                     Vector16{static_cast<uint32_t>(bytes), number,
                              static_cast<uint32_t>(bytes >> 32), number});
      known.own.messages = before + 1;
      known.taken.messages = taken;
    }
    __syncwarp();
    return true;
  }
  __device__ __forceinline__ bool check_head(size_t bytes) const {
    const uint64_t before = known.own.messages;
    const uint32_t number = head_number(before);
    const char* from = reinterpret_cast<const char*>(&here.heads[before % kHeadRing]);
    Vector16 head = load_volatile(from);
    for (Patience patience; !__all_sync(~0u, head.y == number && head.w == number);) {
      if (patience.is_over(p, s, peer)) return false;
      head = load_volatile(from);
    }
    const bool is_right = (uint64_t{head.z} << 32 | head.x) == bytes;
    if (lane_of_warp() == 0) {
      if (is_right) {
        known.own.messages = before + 1;
        store_relaxed(&there.taken_by_peer.messages, before + 1);
      } else {
        stop(p, s, Stop::kMismatch, peer);
        report(p, Stop::kMismatch, peer);
      }
    }
    __syncwarp();
    return is_right;
  }
};

}  // namespace torch::comms::ctran::kernels
