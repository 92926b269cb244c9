#pragma once

#include "ctran/kernels/protocol/bytes.cuh"
#include "ctran/kernels/protocol/connection.cuh"

// Small messages: LL128 tiles, each with its flag. Every copy warp works by itself.
namespace torch::comms::ctran::kernels {

// `kLean`: for messages that is_lean().
template <bool kLean>
class MessageTiles {
 public:
  __device__ explicit MessageTiles(const Connection& connection) : c_(connection) {}

  // What this thread sends first, read while the launch begins. Only with kLean.
  struct PrefetchedTile {
    Vector16 v[kLL128Vectors];
    bool is_read;
  };
  using Prefetched = PrefetchedTile;
  // `channel`: the first channel of this block in the route.
  __device__ __forceinline__ static PrefetchedTile prefetch(const MessageTransfer& msg,
                                                            const MessageRoute& route,
                                                            int channel) {
    PrefetchedTile ahead;
    ahead.is_read = kLean && !route.is_receive && !is_signal_warp() && channel < msg.channels &&
                    first_of(msg, channel) < msg.bytes;
    if (ahead.is_read) load_tile(msg, first_of(msg, channel), ahead.v);
    return ahead;
  }

  // Transfers one channel of a message. `before`: messages of the route earlier in the launch.
  // `ahead` is used if it has been read. For all threads of a block.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool transfer(const MessageTransfer& msg, int before, int channel,
                                           PrefetchedTile& ahead) const {
    const bool done = is_signal_warp() ? c_.exchange_header(msg, before, channel)
                      : c_.is_receive  ? receive(msg, channel)
                                       : send(msg, channel, ahead);
    return __syncthreads_or(!done) == 0;
  }

 private:
  // Each vector of a tile is 480 bytes of the message.
  static constexpr size_t kRow = kLL128Tile / kLL128Vectors;

  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x / kWarp); }
  __device__ __forceinline__ char* tile(int owner, int peer, int channel, uint64_t number) const {
    return c_.p.workspace[owner] + c_.p.tiles + tile_offset(owner, peer, channel, warp(), number) +
           lane_of_warp() * 16;
  }
  // Tiles go to the channels in turn, then to the warps of each channel: short messages have few
  // warps in many blocks.
  __device__ __forceinline__ static size_t first_of(const MessageTransfer& msg, int channel) {
    return static_cast<size_t>(warp() * msg.channels + channel) * kLL128Tile;
  }
  __device__ __forceinline__ static size_t stride_of(const MessageTransfer& msg) {
    return size_t{msg.channels} * kChannelWarps * kLL128Tile;
  }
  __device__ __forceinline__ static size_t offset(int k) {
    return k * kRow + ll128_offset(lane_of_warp(), false);
  }

  __device__ __forceinline__ static void load_tile(const MessageTransfer& msg, size_t at,
                                                   Vector16 (&v)[kLL128Vectors]) {
#pragma unroll
    for (int k = 0; k < kLL128Vectors; ++k) {
      const size_t begin = at + offset(k);
      if constexpr (!kLean)
        v[k] = load_bytes(msg.data + begin, msg.data + msg.bytes);
      else if (begin < msg.bytes)
        v[k] = load_whole(msg.data + begin, ll128_width(lane_of_warp()));
    }
  }
  __device__ __forceinline__ static void store_vector(const MessageTransfer& msg, size_t at,
                                                      const Vector16& v) {
    const size_t width = ll128_width(lane_of_warp());
    if (at >= msg.bytes) return;
    if constexpr (kLean) {
      store_whole(msg.data + at, v, width);
    } else {
      const size_t left = msg.bytes - at;
      store_bytes(msg.data + at, v, static_cast<int>(left < width ? left : width));
    }
  }

  // For a copy warp.
  __device__ __forceinline__ bool send(const MessageTransfer& msg, int channel,
                                       PrefetchedTile& ahead) const {
    uint64_t& sent = c_.state.own.tiles[channel][warp()];
    uint64_t number = sent, taken = c_.state.taken.tiles[channel][warp()];
    Vector16(&v)[kLL128Vectors] = ahead.v;
    for (size_t at = first_of(msg, channel); at < msg.bytes; at += stride_of(msg), ++number) {
      if (!ahead.is_read) load_tile(msg, at, v);
      ahead.is_read = false;
      if (!c_.wait_for_space(c_.here.taken_by_peer.tiles[channel][warp()], number, taken,
                             kTileRing))
        return false;
      char* const to = tile(c_.peer, c_.p.rank, channel, number);
#pragma unroll
      for (int k = 0; k < kLL128Vectors; ++k)
        if (at + k * kRow < msg.bytes) store_ll128(to + k * 512, lane_of_warp(), v[k], number + 1);
    }
    __syncwarp();
    if (lane_of_warp() == 0) {
      sent = number;
      c_.state.taken.tiles[channel][warp()] = taken;
    }
    return true;
  }
  __device__ __forceinline__ bool receive(const MessageTransfer& msg, int channel) const {
    uint64_t& taken = c_.state.own.tiles[channel][warp()];
    const auto report_taken = [&](uint64_t tiles) {
      if (lane_of_warp() == 0) store_relaxed(&c_.there.taken_by_peer.tiles[channel][warp()], tiles);
    };
    uint64_t number = taken;
    for (size_t at = first_of(msg, channel); at < msg.bytes; at += stride_of(msg)) {
      // Reports the previous tile as taken. The last tile is reported with the next message: a
      // kernel's end waits until all that it has written has arrived.
      report_taken(number);
      const char* from = tile(c_.p.rank, c_.peer, channel, number);
      ++number;
      Vector16 v[kLL128Vectors];
      for (StopChecker stop_checker;;) {
        bool arrived = true;
#pragma unroll
        for (int k = 0; k < kLL128Vectors; ++k)
          if (at + k * kRow < msg.bytes) {
            v[k] = load_ll128(from + k * 512);
            arrived = arrived && has_flag(v[k], lane_of_warp(), number);
          }
        if (__all_sync(~0u, arrived)) break;
        if (stop_checker.must_stop(c_.p, c_.s, c_.peer)) return false;
      }
#pragma unroll
      for (int k = 0; k < kLL128Vectors; ++k) store_vector(msg, at + offset(k), v[k]);
    }
    __syncwarp();
    if (lane_of_warp() == 0) taken = number;
    return true;
  }

  const Connection& c_;
};

}  // namespace torch::comms::ctran::kernels
