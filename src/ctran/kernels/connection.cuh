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
  char* place;  // of the message, where its sender writes it; null: nowhere

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
  // There were so many messages.
  __device__ __forceinline__ void note(int block, int blocks, int messages) const {
    Progress& to = receives ? here.taken : here.sent;
    const int i = static_cast<int>(threadIdx.x);
    if (i == 0 && block == 0)
      store_relaxed(&to.messages, known.own.messages + static_cast<uint64_t>(messages));
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

  // For the courier: a channel of a message begins, before which there are so many in the launch.
  // With the first one its size goes to the peer, or is held against the peer's, and a peer that
  // asks is answered. False if the launch has to stop.
  __device__ __forceinline__ bool tell_head(const Parcel& parcel, int before, int channel) const {
    if (channel != 0) return true;
    return receives ? check_head(parcel, number(before)) : send_head(parcel, number(before));
  }
  // The same where this side likes it written straight to its place: finds out whether it is.
  __device__ __forceinline__ bool agree(const Parcel& parcel, int before, int channel) const {
    if (!tell_head(parcel, before, channel)) return false;
    const uint64_t message = number(before);
    const Head& told =
        receives ? here.heads[message % kHeadSlots] : here.answers[message % kHeadRing];
    uint64_t value = 0;
    if (!await(told, message, value)) return false;
    if (lane_of_warp() == 0)
      known.place = !receives              ? reinterpret_cast<char*>(value)
                    : (value & kAsks) != 0 ? parcel.place
                                           : nullptr;
    return true;
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
  // Of a message, among all that there ever were.
  __device__ __forceinline__ uint64_t number(int before) const {
    return known.own.messages + static_cast<uint64_t>(before);
  }
  __device__ __forceinline__ static void put(Head& to, uint64_t value, uint64_t message) {
    const uint32_t number = head_number(message);
    store_volatile(
        reinterpret_cast<char*>(&to),
        Vector16{static_cast<uint32_t>(value), number, static_cast<uint32_t>(value >> 32), number});
  }
  // For a warp: what the peer tells of the message. False if the launch has to stop.
  __device__ __forceinline__ bool await(const Head& from, uint64_t message, uint64_t& value) const {
    const uint32_t number = head_number(message);
    const auto look = [&] { return load_volatile(reinterpret_cast<const char*>(&from)); };
    Vector16 head = look();
    for (Patience patience; !__all_sync(~0u, head.y == number && head.w == number);) {
      if (patience.is_over(p, s, peer)) return false;
      head = look();
    }
    value = uint64_t{head.z} << 32 | head.x;
    return true;
  }
  __device__ __forceinline__ bool send_head(const Parcel& parcel, uint64_t message) const {
    uint64_t taken = known.taken.messages;
    if (!wait_for_room(here.taken_by_peer.messages, message, taken, kHeadRing)) return false;
    if (lane_of_warp() == 0) {
      put(there.heads[message % kHeadSlots], head_value(parcel.bytes, parcel.asks), message);
      known.taken.messages = taken;
    }
    __syncwarp();
    return true;
  }
  __device__ __forceinline__ bool check_head(const Parcel& parcel, uint64_t message) const {
    uint64_t value = 0;
    if (!await(here.heads[message % kHeadSlots], message, value)) return false;
    const bool is_right = (value & ~kAsks) == parcel.bytes;
    if (lane_of_warp() == 0) {
      if (is_right) {
        if ((value & kAsks) != 0)
          put(there.answers[message % kHeadRing], reinterpret_cast<uint64_t>(parcel.place),
              message);
        store_relaxed(&there.taken_by_peer.messages, message + 1);
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
