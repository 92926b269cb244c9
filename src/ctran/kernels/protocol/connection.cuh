#pragma once

#include <cstddef>

#include "ctran/kernels/messages/messages.hpp"
#include "ctran/kernels/protocol/packet_protocols.cuh"

namespace torch::comms::ctran::kernels {

// The last warp of a block is the signal warp, which waits for flags of the peer and publishes
// flags to it. All other warps are copy warps, which move data.
__device__ __forceinline__ bool is_signal_warp() {
  return threadIdx.x / kWarp == blockDim.x / kWarp - 1;
}
__device__ __forceinline__ uint32_t lane_of_warp() { return threadIdx.x % kWarp; }

// State that the warps of a block share.
struct BlockState {
  MessageCounters own;    // what this rank has sent, or has taken if it receives
  MessageCounters taken;  // of a send: what the peer has taken, as last read
  // For the current message and channel: how many chunks the copy warps may move, and how many each
  // of them has moved.
  uint32_t granted;
  uint32_t slots;  // of the current ring; set before chunks are granted
  uint32_t moved[kChannelWarps];
  char* zero_copy_target;  // where the sender writes the message directly; null: to the ring

  // Resets the grants. Called by the signal warp while no copy warp moves data.
  __device__ __forceinline__ void reset_grants() {
    if (lane_of_warp() < kChannelWarps) moved[lane_of_warp()] = 0;
    if (lane_of_warp() == 0) granted = 0;
  }
};

// One peer and direction as one block sees them: where the counters are, and the message headers.
struct Connection {
  const MessageParams& p;
  const LaunchContext& s;
  BlockState& state;
  const int peer;
  const bool is_receive;
  const int block, blocks,
      channels;  // index of this block in the route; blocks and channels of the route
  Mailbox& here;
  Mailbox& there;

  __device__ Connection(const MessageParams& params, const LaunchContext& launch_context,
                        const MessageRoute& route, BlockState& block_state)
      : p(params),
        s(launch_context),
        state(block_state),
        peer(route.peer),
        is_receive(route.is_receive),
        block(static_cast<int>(blockIdx.x) - route.first_block),
        blocks(route.blocks),
        channels(route.channels),
        here(mailbox(p.rank, peer)),
        there(mailbox(peer, p.rank)) {}

  // Loads the counters of this block's channels from the workspace. For all threads of a block.
  __device__ __forceinline__ void load_counters() const {
    const uint64_t *own = words(is_receive ? here.taken : here.sent),
                   *by_peer = words(here.taken_by_peer);
    for_own([&](int word) {
      const uint64_t mine = load_relaxed(own + word);
      const uint64_t taken = is_receive ? 0 : load_relaxed(by_peer + word);
      words(state.own)[word] = mine;
      words(state.taken)[word] = taken;
    });
    if (is_signal_warp()) state.reset_grants();
  }
  // Stores the counters of this block's channels after `messages` messages. For all threads of a
  // block.
  __device__ __forceinline__ void store_counters(int messages) const {
    if (threadIdx.x == 0) state.own.messages += static_cast<uint64_t>(messages);
    __syncthreads();
    uint64_t* const to = words(is_receive ? here.taken : here.sent);
    for_own([&](int word) {
      if (word != 0 || block == 0) store_relaxed(to + word, words(state.own)[word]);
    });
  }

  // Waits until a ring of `ring` entries has space for one more. `taken` is updated from the peer's
  // `counter`. For a whole warp.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool wait_for_space(const uint64_t& counter, uint64_t sent,
                                                 uint64_t& taken, uint64_t ring) const {
    for (StopChecker stop_checker; !has_space(sent, taken, ring);) {
      taken = __shfl_sync(~0u, load_acquire(&counter), 0);
      if (stop_checker.must_stop(p, s, peer)) return false;
    }
    return true;
  }

  // Begins a channel of a message; for the signal warp. On channel 0 a sender sends the message's
  // size. A receiver compares it with its own and answers a zero-copy request. `before`: messages
  // of the route earlier in the launch.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool exchange_header(const MessageTransfer& msg, int before,
                                                  int channel) const {
    if (channel != 0) return true;
    return is_receive ? check_header(msg, number(before)) : send_header(msg, number(before));
  }
  // Begins a channel for which this side offers or requests zero-copy; for the signal warp. Sets
  // state.zero_copy_target to the agreed address, or to null.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool negotiate_zero_copy(const MessageTransfer& msg, int before,
                                                      int channel) const {
    if (!exchange_header(msg, before, channel)) return false;
    const uint64_t message = number(before);
    const MailboxEntry& entry =
        is_receive ? here.headers[message % kHeaderSlots] : here.replies[message % kHeaderRing];
    uint64_t value = 0;
    if (!wait_for_entry(entry, message, value)) return false;
    if (lane_of_warp() == 0)
      state.zero_copy_target = !is_receive                       ? reinterpret_cast<char*>(value)
                               : (value & kZeroCopyRequest) != 0 ? msg.zero_copy_target
                                                                 : nullptr;
    return true;
  }

 private:
  // Views MessageCounters as words; word 0 is `messages`.
  static_assert(offsetof(MessageCounters, messages) == 0);
  __device__ __forceinline__ static uint64_t* words(MessageCounters& all) {
    return reinterpret_cast<uint64_t*>(&all);
  }
  // Calls each(word) for the message counter and for all counters of this block's channels. Each
  // word goes to one thread.
  template <class Each>
  __device__ __forceinline__ void for_own(Each each) const {
    constexpr int kOfChannel = kChannelWarps + 1, kChunks = offsetof(MessageCounters, chunks) / 8,
                  kTiles = offsetof(MessageCounters, tiles) / 8;
    const int own = (channels - block + blocks - 1) / blocks * kOfChannel;
    for (int i = static_cast<int>(threadIdx.x); i <= own; i += static_cast<int>(blockDim.x)) {
      const int channel = block + i / kOfChannel * blocks, counter = i % kOfChannel;
      each(i == own                   ? 0
           : counter == kChannelWarps ? kChunks + channel
                                      : kTiles + channel * kChannelWarps + counter);
    }
  }

  __device__ __forceinline__ Mailbox& mailbox(int owner, int other) const {
    return *reinterpret_cast<Mailbox*>(p.workspace[owner] + p.mailboxes +
                                       mailbox_offset(owner, other));
  }
  // Returns the number of a message among all messages that this direction ever had.
  __device__ __forceinline__ uint64_t number(int before) const {
    return state.own.messages + static_cast<uint64_t>(before);
  }
  __device__ __forceinline__ static void put(MailboxEntry& to, uint64_t value, uint64_t message) {
    const uint32_t number = header_number(message);
    store_volatile(
        reinterpret_cast<char*>(&to),
        Vector16{static_cast<uint32_t>(value), number, static_cast<uint32_t>(value >> 32), number});
  }
  // Waits until the peer has written the mailbox entry of `message`. For a whole warp.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool wait_for_entry(const MailboxEntry& from, uint64_t message,
                                                 uint64_t& value) const {
    const uint32_t number = header_number(message);
    const auto look = [&] { return load_volatile(reinterpret_cast<const char*>(&from)); };
    Vector16 head = look();
    for (StopChecker stop_checker; !__all_sync(~0u, head.y == number && head.w == number);) {
      if (stop_checker.must_stop(p, s, peer)) return false;
      head = look();
    }
    value = uint64_t{head.z} << 32 | head.x;
    return true;
  }
  __device__ __forceinline__ bool send_header(const MessageTransfer& msg, uint64_t message) const {
    uint64_t taken = state.taken.messages;
    if (!wait_for_space(here.taken_by_peer.messages, message, taken, kHeaderRing)) return false;
    if (lane_of_warp() == 0) {
      put(there.headers[message % kHeaderSlots], header_value(msg.bytes, msg.requests_zero_copy),
          message);
      state.taken.messages = taken;
    }
    __syncwarp();
    return true;
  }
  __device__ __forceinline__ bool check_header(const MessageTransfer& msg, uint64_t message) const {
    // The previous message is reported as taken here, where no rank waits for the report. At a
    // kernel's end it would cost time: the end waits until all writes have arrived.
    if (lane_of_warp() == 0) store_relaxed(&there.taken_by_peer.messages, message);
    uint64_t value = 0;
    if (!wait_for_entry(here.headers[message % kHeaderSlots], message, value)) return false;
    const bool is_right = (value & ~kZeroCopyRequest) == msg.bytes;
    if (lane_of_warp() == 0) {
      if (is_right) {
        if ((value & kZeroCopyRequest) != 0)
          put(there.replies[message % kHeaderRing],
              reinterpret_cast<uint64_t>(msg.zero_copy_target), message);
      } else {
        stop(p, s, StopReason::kSizeMismatch, peer);
        report(p, StopReason::kSizeMismatch, peer);
      }
    }
    __syncwarp();
    return is_right;
  }
};

}  // namespace torch::comms::ctran::kernels
