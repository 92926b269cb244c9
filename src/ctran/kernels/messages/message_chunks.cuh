#pragma once

#include "ctran/kernels/protocol/bytes.cuh"
#include "ctran/kernels/protocol/connection.cuh"

// Large messages: chunks of plain data, and a counter that follows them after a fence. With
// zero-copy, the sender writes the data to the receiver's memory, and the counter follows the whole
// channel.
namespace torch::comms::ctran::kernels {

template <bool kZeroCopy>
class MessageChunks {
 public:
  __device__ explicit MessageChunks(const Connection& connection) : c_(connection) {}

  using Copier = ChunkCopier<kChannelWarps * kWarp, kChunk>;
  // What is sent first, read while the launch begins.
  struct PrefetchedChunk {
    Copier copier;
    bool is_read = false;
  };
  using Prefetched = PrefetchedChunk;
  // `channel`: the first channel of this block in the route.
  __device__ __forceinline__ static PrefetchedChunk prefetch(const MessageTransfer& msg,
                                                             const MessageRoute& route,
                                                             int channel) {
    PrefetchedChunk ahead;
    ahead.is_read = !msg.is_ll128 && !route.is_receive && !(kZeroCopy && msg.requests_zero_copy) &&
                    !is_signal_warp() && channel < msg.channels;
    if (ahead.is_read) load(ahead.copier, msg, channel, 0);
    return ahead;
  }

  // Transfers one channel of a message. `before`: messages of the route earlier in the launch.
  // `ahead` is used if it has been read. For all threads of a block.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool transfer(const MessageTransfer& msg, int before, int channel,
                                           PrefetchedChunk& ahead) const {
    const bool wants_zero_copy =
        kZeroCopy && (c_.is_receive ? msg.zero_copy_target != nullptr : msg.requests_zero_copy);
    if (wants_zero_copy) {
      const bool agreed = !is_signal_warp() || c_.negotiate_zero_copy(msg, before, channel);
      if (__syncthreads_or(!agreed) != 0) return false;
      if (c_.is_receive && c_.state.zero_copy_target != nullptr) return wait_for_all(msg, channel);
    }
    // What is left to the signal warp: the header.
    const auto begin = [&] { return wants_zero_copy || c_.exchange_header(msg, before, channel); };
    if (c_.is_receive) return receive(msg, channel, begin);
    return send(msg, channel, wants_zero_copy ? c_.state.zero_copy_target : nullptr, begin, ahead);
  }

 private:
  __device__ __forceinline__ char* chunk(int owner, int peer, int channel, uint64_t number) const {
    return c_.p.workspace[owner] +
           chunk_offset(c_.p.chunks, c_.state.slots, owner, peer, channel, number);
  }
  __device__ __forceinline__ static uint32_t chunks_of(const MessageTransfer& msg, int channel) {
    return static_cast<uint32_t>(
        pieces_of(quotient_up(msg.bytes, msg.piece), msg.channels, channel));
  }
  // Offset and size of chunk i of a channel.
  struct ChunkExtent {
    size_t at;
    uint32_t bytes;
  };
  __device__ __forceinline__ static ChunkExtent piece_of(const MessageTransfer& msg, int channel,
                                                         uint32_t i) {
    const size_t at = (size_t{i} * msg.channels + channel) * msg.piece, left = msg.bytes - at;
    return {at, left < msg.piece ? static_cast<uint32_t>(left) : msg.piece};
  }

  __device__ __forceinline__ static void load(Copier& copier, const MessageTransfer& msg,
                                              int channel, uint32_t i) {
    const ChunkExtent piece = piece_of(msg, channel, i);
    copier.load(msg.data + piece.at, piece.bytes);
  }

  // Copy warps proceed as far as the signal warp allows, each at its own pace. The signal warp
  // reports to the peer what all copy warps have moved. It reports as many chunks at once as there
  // are, because the fence before a report takes time.
  static constexpr uint32_t kNoMore = ~0u;

  // Waits until this copy warp may move chunk i.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool may_move(uint32_t i) const {
    uint32_t granted = load_shared(c_.state.granted);
    while (granted <= i) granted = load_shared(c_.state.granted);
    fence_block();
    return __all_sync(~0u, granted != kNoMore);
  }
  __device__ __forceinline__ void has_moved(uint32_t chunks) const {
    fence_block();
    __syncwarp();
    if (lane_of_warp() == 0) store_shared(c_.state.moved[threadIdx.x / kWarp], chunks);
  }
  // The work of the signal warp for `count` chunks. granted(reported) returns how many chunks may
  // be moved, when `reported` of them have been reported. report_moved(moved) reports to the peer.
  template <class Granted, class ReportMoved>
  __device__ __forceinline__ bool run_signal_warp(uint32_t count, Granted granted,
                                                  ReportMoved report_moved) const {
    uint32_t allowed = 0, reported = 0;
    for (StopChecker stop_checker; reported < count;) {
      if (allowed < count) {
        allowed = granted(reported);
        fence_block();
        if (lane_of_warp() == 0) store_shared(c_.state.granted, allowed);
      }
      uint32_t moved =
          lane_of_warp() < kChannelWarps ? load_shared(c_.state.moved[lane_of_warp()]) : count;
      moved = __reduce_min_sync(~0u, moved);
      if (moved > reported) {
        reported = moved;
        if (lane_of_warp() == 0) report_moved(reported);
        __syncwarp();
      } else if (stop_checker.must_stop(c_.p, c_.s, c_.peer,
                                        allowed < count && reported == allowed)) {
        return false;
      }
    }
    return true;
  }
  // Ends a channel; for all threads of a block. `counter`: the new counter of the channel.
  __device__ __forceinline__ bool finish(bool done, int channel, uint64_t counter) const {
    if (is_signal_warp()) {
      if (lane_of_warp() == 0) c_.state.own.chunks[channel] = counter;
      if (done)
        c_.state.reset_grants();
      else if (lane_of_warp() == 0)
        store_shared(c_.state.granted, kNoMore);
    }
    return __syncthreads_or(!done) == 0;
  }
  __device__ __forceinline__ bool wait_for_all(const MessageTransfer& msg, int channel) const {
    bool done = true;
    if (is_signal_warp()) {
      uint64_t& taken = c_.state.own.chunks[channel];
      const uint64_t wanted = taken + chunks_of(msg, channel);
      const auto sent = [&] {
        return number_of(__shfl_sync(~0u, load_acquire(&c_.here.chunks[channel].value), 0));
      };
      for (StopChecker stop_checker; done && !has_reached(sent(), wanted);)
        done = !stop_checker.must_stop(c_.p, c_.s, c_.peer);
      __syncwarp();
      if (lane_of_warp() == 0) {
        taken = wanted;
        if (done) publish_taken(channel, wanted);
      }
    }
    return __syncthreads_or(!done) == 0;
  }
  __device__ __forceinline__ static uint32_t least(uint64_t chunks, uint32_t count) {
    return chunks < count ? static_cast<uint32_t>(chunks) : count;
  }

  // Reports to the peer how many chunks, of all that there ever were, have been written or taken.
  // For one thread.
  __device__ __forceinline__ void publish_chunks(int channel, uint64_t counter) const {
    fence_release();
    store_relaxed(&c_.there.chunks[channel].value, counter);
  }
  __device__ __forceinline__ void publish_taken(int channel, uint64_t chunks) const {
    store_relaxed(&c_.there.taken_by_peer.chunks[channel], c_.p.chunks.known_ring | chunks);
  }

  // `zero_copy_target`: where the peer wants the message; null: send through the ring. `begin`: for
  // the signal warp; false if the launch has to stop.
  template <class Begin>
  __device__ __forceinline__ bool send(const MessageTransfer& msg, int channel,
                                       char* zero_copy_target, Begin begin,
                                       PrefetchedChunk& ahead) const {
    const bool is_straight = kZeroCopy && zero_copy_target != nullptr;
    // The bytes before the first aligned vector of the target, which are few.
    const uint32_t head = is_straight ? -misaligned(zero_copy_target) % 16 : 0;
    MessageTransfer rest = msg;
    rest.data += head;
    rest.bytes -= head;
    const uint32_t count = chunks_of(rest, channel);
    // The peer counts chunks of the whole message, including the bytes that are cut off.
    const uint64_t counter = c_.state.own.chunks[channel], before = number_of(counter),
                   shared = c_.p.chunks.known_ring & ring_in(c_.state.taken.chunks[channel]),
                   ring = is_straight ? ring_in(counter) : shared,
                   after = ring | (before + chunks_of(msg, channel));
    bool done = true;
    if (is_signal_warp()) {
      const bool changes = ring != ring_in(counter);
      const auto slots = c_.p.chunks.slots(ring);
      if (lane_of_warp() == 0) c_.state.slots = slots;
      uint64_t taken = c_.state.taken.chunks[channel];
      const auto end = [&] { return end_of_space(before, number_of(taken), slots, changes); };
      const auto granted = [&](uint32_t reported) {
        if (is_straight) return count;
        // The peer's counter is read only when less than half of the ring is known to be free.
        const uint32_t ahead = reported + slots / 2 + 1;
        if (!has_reached(end(), before + (ahead < count ? ahead : count)))
          taken = __shfl_sync(~0u, load_acquire(&c_.here.taken_by_peer.chunks[channel]), 0);
        // After zero-copy messages `before` may be further ahead than the ring is long.
        return has_reached(end(), before) ? least(end() - before, count) : 0;
      };
      done = begin() && run_signal_warp(count, granted, [&](uint32_t moved) {
               if (!is_straight) publish_chunks(channel, ring | (before + moved));
             });
      if (is_straight && done && lane_of_warp() == 0) publish_chunks(channel, after);
      if (lane_of_warp() == 0) c_.state.taken.chunks[channel] = taken;
    } else {
      if constexpr (kZeroCopy)
        if (channel == 0 && threadIdx.x < head)
          zero_copy_target[threadIdx.x] = msg.data[threadIdx.x];
      Copier& copier = ahead.copier;
      if (count > 0 && !ahead.is_read) load(copier, rest, channel, 0);
      ahead.is_read = false;
      for (uint32_t i = 0; done && i < count; ++i) {
        done = may_move(i);
        if (!done) break;
        copier.put(is_straight ? zero_copy_target + head + piece_of(rest, channel, i).at
                               : chunk(c_.peer, c_.p.rank, channel, before + i));
        if (!is_straight || i + 1 == count) has_moved(i + 1);
        if (i + 1 < count) load(copier, rest, channel, i + 1);
      }
    }
    return finish(done, channel, after);
  }
  template <class Begin>
  __device__ __forceinline__ bool receive(const MessageTransfer& msg, int channel,
                                          Begin begin) const {
    const uint32_t count = chunks_of(msg, channel);
    const uint64_t before = c_.state.own.chunks[channel];
    bool done = true;
    if (is_signal_warp()) {
      if (lane_of_warp() == 0) publish_taken(channel, before);
      const auto granted = [&](uint32_t) {
        const uint64_t sent = __shfl_sync(~0u, load_acquire(&c_.here.chunks[channel].value), 0);
        // A ring is empty before a message uses another one, so the chunks of this message all went
        // through the ring that the counter names.
        if (lane_of_warp() == 0) c_.state.slots = c_.p.chunks.slots(ring_in(sent));
        return least(number_of(sent) - before, count);
      };
      uint32_t reported = 0;
      done = begin() && run_signal_warp(count, granted, [&](uint32_t moved) {
               // The last chunk is reported as late as the last tile of a message
               // (message_tiles.cuh).
               if (reported + 1 < count) publish_taken(channel, before + least(moved, count - 1));
               reported = moved;
             });
    } else {
      for (uint32_t i = 0; done && i < count; ++i) {
        done = may_move(i);
        if (!done) break;
        const ChunkExtent piece = piece_of(msg, channel, i);
        Copier::copy_from_slot(msg.data + piece.at, chunk(c_.p.rank, c_.peer, channel, before + i),
                               piece.bytes);
        has_moved(i + 1);
      }
    }
    return finish(done, channel, before + count);
  }

  const Connection& c_;
};

}  // namespace torch::comms::ctran::kernels
