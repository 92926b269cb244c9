#pragma once

#include "ctran/kernels/protocol/tiles.cuh"

// Collectives of two hops without a barrier between. Every tile of a part goes to the part's owner,
// who makes one tile of them and sends it on. A worker sends its next tiles before it waits for the
// tiles of a step, so both hops are in flight at once. Two slots are enough for each hop.
namespace torch::comms::ctran::kernels {

template <class Protocol, class F, int N>
class TwoShot {
  static_assert(Protocol::kKind != PacketProtocol::kLL);

 public:
  __device__ TwoShot(const CollectiveParams& p, const LaunchContext& s)
      : p_(p), s_(s), protocol_(p, s) {}

  __device__ __forceinline__ bool run() {
    if (p_.steps == 0 || !scatter(0)) return p_.steps == 0;
#pragma unroll 1
    for (uint64_t step = 0; step < p_.steps; ++step) {
      if (step + 1 < p_.steps && !scatter(step + 1)) return false;
      if (!combine(step) || !collect(step)) return false;
      if (p_.has_acks) protocol_.acknowledge(peers(), step + 1);
    }
    return true;
  }

 private:
  static constexpr int kSlots = kRing / 2;

  __device__ __forceinline__ uint32_t peers() const {
    return ((1u << p_.size) - 1) & ~(1u << p_.rank);
  }
  __device__ __forceinline__ TensorRange part_of_rank(int rank) const {
    return part_of(p_.bytes, p_.part, rank, p_.without_part);
  }
  // Returns where a part's tile begins; at or after the part's end if it has no such tile.
  __device__ __forceinline__ size_t tile_at(const TensorRange& part, uint64_t step) const {
    return part.begin + (step * Protocol::workers() + protocol_.worker()) * Protocol::kTile;
  }
  // Returns those of `ranks` whose parts have a tile in this step.
  __device__ __forceinline__ uint32_t with_tile(uint32_t ranks, uint64_t step) const {
    for (int r = 0; r < p_.size; ++r) {
      const TensorRange part = part_of_rank(r);
      if (tile_at(part, step) >= part.end) ranks &= ~(1u << r);
    }
    return ranks;
  }

  __device__ __forceinline__ bool scatter(uint64_t step) const {
    if (p_.has_acks && step >= kSlots && !protocol_.acknowledged(peers(), step - kSlots + 1))
      return false;
    const int ring = static_cast<int>(step % kSlots);
    const uint32_t ranks = with_tile(p_.send_to, step);
    if (ranks == 0) return true;
    if constexpr (kPartsTogether<N>) {
      Vector16 v[N - 1][Protocol::kVectors];
#pragma unroll
      for (int i = 1; i < N; ++i)
        if (i < p_.size && (ranks >> next(i) & 1) != 0) load_part(next(i), step, v[i - 1]);
#pragma unroll
      for (int i = 1; i < N; ++i)
        if (i < p_.size && (ranks >> next(i) & 1) != 0) send_part(next(i), ring, step, v[i - 1]);
    } else {
#pragma unroll 1
      for (int i = 1; i < p_.size; ++i) {
        if ((ranks >> next(i) & 1) == 0) continue;
        Vector16 v[Protocol::kVectors];
        load_part(next(i), step, v);
        send_part(next(i), ring, step, v);
      }
    }
    return true;
  }
  __device__ __forceinline__ int next(int i) const { return rank_after(p_.rank, i, p_.size); }
  __device__ __forceinline__ void load_part(int peer, uint64_t step,
                                            Vector16 (&v)[Protocol::kVectors]) const {
    const TensorRange part = part_of_rank(peer);
#pragma unroll
    for (int k = 0; k < Protocol::kVectors; ++k)
      v[k] = load_own<Protocol, F>(p_, s_, protocol_, p_.input, tile_at(part, step), part.end, k);
  }
  __device__ __forceinline__ void send_part(int peer, int ring, uint64_t step,
                                            const Vector16 (&v)[Protocol::kVectors]) const {
    const TensorRange part = part_of_rank(peer);
    const size_t at = tile_at(part, step);
#pragma unroll
    for (int k = 0; k < Protocol::kVectors; ++k) {
      if (is_there(protocol_, at, part.end, k)) protocol_.put(peer, ring, step, k, v[k]);
      if (p_.own_to != nullptr)
        store<Protocol::kLean>(p_, p_.own_to, at + protocol_.offset(k), part.end, protocol_.width(),
                               v[k]);
    }
  }

  // Handles a finished vector of this rank's part: stores it, and sends it to gather_to.
  __device__ __forceinline__ void store_and_send(size_t at, size_t end, uint64_t step, int k,
                                                 const Vector16& v, bool stores) const {
    if (stores)
      store<Protocol::kLean>(p_, p_.output, at + protocol_.offset(k), end, protocol_.width(), v);
    if (!is_there(protocol_, at, end, k)) return;
#pragma unroll 1
    for (int i = 1; i < p_.size; ++i) {
      const int peer = next(i);
      if ((p_.gather_to >> peer & 1) != 0)
        protocol_.put(peer, kSlots + static_cast<int>(step % kSlots), step, k, v);
    }
  }

  __device__ __forceinline__ bool combine(uint64_t step) const {
    const int ring = static_cast<int>(step % kSlots);
    const TensorRange part = part_of_rank(p_.rank);
    const size_t at = tile_at(part, step);
    if (at >= part.end) return true;
    const auto own = [&](int k) {
      return load_own<Protocol, F>(p_, s_, protocol_, p_.input, at, part.end, k);
    };
    if constexpr (F::kMoves)
      return receive_tile<Protocol, N>(
          p_, s_, protocol_, p_.receive_from, ring, step, at, part.end,
          [&](int, int k, const Vector16& v) { store_and_send(at, part.end, step, k, v, true); });
    else
      return reduce_tile<Protocol, F, N>(p_, s_, protocol_, p_.receive_from, ring, step, at,
                                         part.end, own, [&](int k, const Vector16& v) {
                                           store_and_send(at, part.end, step, k, v,
                                                          p_.output != nullptr);
                                         });
  }

  __device__ __forceinline__ bool collect(uint64_t step) const {
    const int ring = kSlots + static_cast<int>(step % kSlots);
    const uint32_t ranks = with_tile(p_.gather_from, step);
    if (ranks == 0) return true;
    const auto into = [&](int source, int k, const Vector16& v) {
      const TensorRange part = part_of_rank(source);
      store<Protocol::kLean>(p_, p_.output, tile_at(part, step) + protocol_.offset(k), part.end,
                             protocol_.width(), v);
    };
    return receive_tile<Protocol, N>(p_, s_, protocol_, ranks, ring, step, 0, Protocol::kTile,
                                     into);
  }

  const CollectiveParams& p_;
  const LaunchContext& s_;
  Protocol protocol_;
};

}  // namespace torch::comms::ctran::kernels
