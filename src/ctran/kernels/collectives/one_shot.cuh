#pragma once

#include "ctran/kernels/protocol/tiles.cuh"

// Collectives of one hop: a rank sends tiles to their receivers, and uses the tiles of peers as
// they arrive.
namespace torch::comms::ctran::kernels {

template <class Protocol, class F, int N>
class OneShot {
 public:
  __device__ OneShot(const CollectiveParams& p, const LaunchContext& s)
      : p_(p), s_(s), protocol_(p, s) {}

  static constexpr bool kMayScale = !F::kMoves && !Protocol::kLean;

  // The vectors that this thread sends first, read while the launch begins. With LL, one vector for
  // each peer from the next rank on, or a single one if all peers get the same.
  struct PrefetchedVectors {
    static constexpr int kMost = Protocol::kVectors > 1 ? Protocol::kVectors : N - 1;
    Vector16 v[kMost];
    bool is_read;
  };
  __device__ __forceinline__ static PrefetchedVectors prefetch(const CollectiveParams& p) {
    PrefetchedVectors ahead;
    const size_t at = Protocol::worker() * Protocol::kTile, first = at + Protocol::offset(0),
                 last = at + Protocol::offset(Protocol::kVectors - 1);
    const bool has_room = p.send_stride == 0 || Protocol::kVectors == 1,
               is_whole = Protocol::kLean || (p.is_aligned && last + Protocol::width() <= p.bytes);
    ahead.is_read = has_room && is_whole && last < p.bytes && p.send_to != 0;
    if (!ahead.is_read) return ahead;
#pragma unroll
    for (int i = 0; i < PrefetchedVectors::kMost; ++i) {
      if (Protocol::kVectors == 1 && i != 0 && (p.send_stride == 0 || i + 1 >= p.size)) break;
      const char* const from = Protocol::kVectors > 1
                                   ? p.input + at + Protocol::offset(i)
                                   : p.input + next(p, i + 1) * p.send_stride + first;
      ahead.v[i] = load_whole(from, Protocol::width());
    }
    return ahead;
  }

  __device__ __forceinline__ bool run(const PrefetchedVectors& ahead) {
    if constexpr (Protocol::kLean && Protocol::kOneStep) {
      send_prefetched(ahead);
      return receive(0);
    } else {
      if (p_.steps == 0 || !send(0, ahead)) return p_.steps == 0;
#pragma unroll 1
      for (uint64_t step = 0; step < p_.steps; ++step)
        if ((step + 1 < p_.steps && !send(step + 1, ahead)) || !receive(step)) return false;
      return true;
    }
  }

 private:
  __device__ __forceinline__ static int next(const CollectiveParams& p, int i) {
    return rank_after(p.rank, i, p.size);
  }
  __device__ __forceinline__ size_t tile_of(uint64_t step) const {
    return step * Protocol::workers() + protocol_.worker();
  }

  __device__ __forceinline__ bool send(uint64_t step, const PrefetchedVectors& ahead) const {
    const size_t tile = tile_of(step), at = tile * Protocol::kTile;
    if (tile >= p_.tiles || p_.send_to == 0) return true;
    if (p_.has_acks && step >= kRing && !protocol_.acknowledged(p_.send_to, step - kRing + 1))
      return false;
    const bool is_read = step == 0 && ahead.is_read;
    if constexpr (kPartsTogether<N>)
      if (p_.send_stride != 0 && !is_read) return send_parts(step, at);
    Vector16 v[Protocol::kVectors];
    if (p_.send_stride == 0) {
      if (is_read)
        use_prefetched(ahead, 0, v);
      else
        load_tile(p_.input, at, v);
    }
#pragma unroll 1
    for (int i = 1; i < p_.size; ++i) {
      const int peer = next(p_, i);
      if ((p_.send_to >> peer & 1) == 0) continue;
      if (p_.send_stride != 0) {
        if (is_read)
          use_prefetched(ahead, i - 1, v);
        else
          load_tile(p_.input + peer * p_.send_stride, at, v);
      }
#pragma unroll
      for (int k = 0; k < Protocol::kVectors; ++k)
        if (is_there(protocol_, at, p_.bytes, k)) protocol_.put(peer, step % kRing, step, k, v[k]);
    }
    return true;
  }

  __device__ __forceinline__ void send_prefetched(const PrefetchedVectors& ahead) const {
    if (!ahead.is_read) return;
#pragma unroll
    for (int i = 1; i < N; ++i)
      if (i < p_.size && (p_.send_to >> next(p_, i) & 1) != 0)
        protocol_.put(next(p_, i), 0, 0, 0, p_.send_stride == 0 ? ahead.v[0] : ahead.v[i - 1]);
  }
  // Sends a tile to each peer; all of them are read before the first is sent.
  __device__ __forceinline__ bool send_parts(uint64_t step, size_t at) const {
    Vector16 v[N - 1][Protocol::kVectors];
#pragma unroll
    for (int i = 1; i < N; ++i)
      if (i < p_.size) load_tile(p_.input + next(p_, i) * p_.send_stride, at, v[i - 1]);
#pragma unroll
    for (int i = 1; i < N; ++i)
      if (i < p_.size)
#pragma unroll
        for (int k = 0; k < Protocol::kVectors; ++k)
          if (is_there(protocol_, at, p_.bytes, k))
            protocol_.put(next(p_, i), step % kRing, step, k, v[i - 1][k]);
    return true;
  }
  // Copies the prefetched vectors from number `first` on.
  __device__ __forceinline__ void use_prefetched(const PrefetchedVectors& ahead, int first,
                                                 Vector16 (&v)[Protocol::kVectors]) const {
#pragma unroll
    for (int k = 0; k < Protocol::kVectors; ++k) {
#pragma unroll
      for (int j = 0; j < PrefetchedVectors::kMost; ++j)
        if (j == first + k) v[k] = ahead.v[j];
      if constexpr (kMayScale)
        if (p_.has_factor) scale(p_, s_, v[k]);
    }
  }
  __device__ __forceinline__ void load_tile(const char* from, size_t at,
                                            Vector16 (&v)[Protocol::kVectors]) const {
#pragma unroll
    for (int k = 0; k < Protocol::kVectors; ++k)
      v[k] = load_own<Protocol, F>(p_, s_, protocol_, from, at, p_.bytes, k);
  }

  __device__ __forceinline__ void store_vector(char* to, size_t at, int k,
                                               const Vector16& v) const {
    store<Protocol::kLean>(p_, to, at + protocol_.offset(k), p_.bytes, protocol_.width(), v);
  }

  __device__ __forceinline__ bool receive(uint64_t step) const {
    const size_t tile = tile_of(step), at = tile * Protocol::kTile;
    if (tile >= p_.tiles) return true;
    if (F::kMoves && p_.own_to != nullptr)
      for (int k = 0; k < Protocol::kVectors; ++k)
        store_vector(p_.own_to, at, k,
                     load<Protocol::kLean>(p_, p_.own, at + protocol_.offset(k), p_.bytes,
                                           protocol_.width()));
    if (p_.receive_from == 0) return true;
    bool done = false;
    if constexpr (F::kMoves)
      done = receive_tile<Protocol, N>(p_, s_, protocol_, p_.receive_from, step % kRing, step, at,
                                       p_.bytes, [&](int source, int k, const Vector16& v) {
                                         store_vector(p_.output + source * p_.receive_stride, at, k,
                                                      v);
                                       });
    else
      done = reduce_tile<Protocol, F, N>(
          p_, s_, protocol_, p_.receive_from, step % kRing, step, at, p_.bytes,
          [&](int k) { return load_own<Protocol, F>(p_, s_, protocol_, p_.own, at, p_.bytes, k); },
          [&](int k, const Vector16& v) { store_vector(p_.output, at, k, v); });
    if (done && p_.has_acks) protocol_.acknowledge(p_.receive_from, step + 1);
    return done;
  }

  const CollectiveParams& p_;
  const LaunchContext& s_;
  Protocol protocol_;
};

}  // namespace torch::comms::ctran::kernels
