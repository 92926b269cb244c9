#pragma once

#include "ctran/kernels/bytes.cuh"
#include "ctran/kernels/connection.cuh"

// Small messages: tiles of lines, each with its flag. Every warp of movers is by itself.
namespace torch::comms::ctran::kernels {

class MessageTiles {
 public:
  __device__ explicit MessageTiles(const Connection& connection) : c_(connection) {}

  // For all threads of a block: what a channel carries of a message, before which there are so
  // many in the launch. False if the launch has to stop.
  __device__ __forceinline__ bool carry(const Parcel& parcel, int before, int channel) const {
    const bool done = is_courier()  ? c_.tell_head(parcel, before, channel)
                      : c_.receives ? receive(parcel, channel)
                                    : send(parcel, channel);
    return __syncthreads_or(!done) == 0;
  }

 private:
  __device__ __forceinline__ char* tile(int owner, int peer, int channel, int warp,
                                        uint64_t number) const {
    return c_.p.workspace[owner] + c_.p.tiles + tile_offset(owner, peer, channel, warp, number) +
           lane_of_warp() * 16;
  }
  // The vectors of a tile are 480 bytes of the message each.
  static constexpr size_t kRow = kLineTile / kLineVectors;

  // For a warp of movers.
  __device__ __forceinline__ bool send(const Parcel& parcel, int channel) const {
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    uint64_t& sent = c_.known.own.tiles[channel][warp];
    const size_t stride = size_t{parcel.channels} * kChannelWarps * kLineTile;
    uint64_t number = sent, taken = c_.known.taken.tiles[channel][warp];
    for (size_t at = (channel * kChannelWarps + warp) * kLineTile; at < parcel.bytes;
         at += stride, ++number) {
      Vector16 v[kLineVectors];
#pragma unroll
      for (int k = 0; k < kLineVectors; ++k)
        v[k] = load_bytes(parcel.data + at + k * kRow + line_offset(lane_of_warp(), false),
                          parcel.data + parcel.bytes);
      if (!c_.wait_for_room(c_.here.taken_by_peer.tiles[channel][warp], number, taken, kTileRing))
        return false;
      char* const to = tile(c_.peer, c_.p.rank, channel, warp, number);
#pragma unroll
      for (int k = 0; k < kLineVectors; ++k)
        if (at + k * kRow < parcel.bytes) put_line(to + k * 512, lane_of_warp(), v[k], number + 1);
    }
    __syncwarp();
    if (lane_of_warp() == 0) {
      sent = number;
      c_.known.taken.tiles[channel][warp] = taken;
    }
    return true;
  }
  __device__ __forceinline__ bool receive(const Parcel& parcel, int channel) const {
    const int warp = static_cast<int>(threadIdx.x / kWarp);
    uint64_t& taken = c_.known.own.tiles[channel][warp];
    const size_t stride = size_t{parcel.channels} * kChannelWarps * kLineTile;
    uint64_t number = taken;
    for (size_t at = (channel * kChannelWarps + warp) * kLineTile; at < parcel.bytes;
         at += stride) {
      const char* from = tile(c_.p.rank, c_.peer, channel, warp, number);
      ++number;
      Vector16 v[kLineVectors];
      for (Patience patience;;) {
        bool landed = true;
#pragma unroll
        for (int k = 0; k < kLineVectors; ++k)
          if (at + k * kRow < parcel.bytes) {
            v[k] = look_at_line(from + k * 512);
            landed = landed && has_flag(v[k], lane_of_warp(), number);
          }
        if (__all_sync(~0u, landed)) break;
        if (patience.is_over(c_.p, c_.s, c_.peer)) return false;
      }
#pragma unroll
      for (int k = 0; k < kLineVectors; ++k) {
        const size_t first = at + k * kRow + line_offset(lane_of_warp(), false);
        if (first >= parcel.bytes) continue;
        const size_t left = parcel.bytes - first, width = line_width(lane_of_warp());
        store_bytes(parcel.data + first, v[k], static_cast<int>(left < width ? left : width));
      }
      __syncwarp();
      if (lane_of_warp() == 0) store_relaxed(&c_.there.taken_by_peer.tiles[channel][warp], number);
    }
    __syncwarp();
    if (lane_of_warp() == 0) taken = number;
    return true;
  }

  const Connection& c_;
};

}  // namespace torch::comms::ctran::kernels
