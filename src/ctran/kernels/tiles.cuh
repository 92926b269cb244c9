#pragma once

#include "ctran/kernels/tensor.cuh"
#include "ctran/kernels/wires.cuh"

// What a worker does with a tile: sends it, takes those of others, reduces them.
namespace torch::comms::ctran::kernels {

template <int N, class Wire>
inline constexpr int kAtOnce = Wire::kVectors < 8 / N ? Wire::kVectors : 8 / N;

// Whether tiles for all peers are read before the first is sent: of more ranks they are too many.
template <int N>
inline constexpr bool kPartsTogether = N <= 4;

static __device__ __noinline__ void scale(const Params& p, const Session& s, Vector16& v) {
  v = scaled(p.dtype, s.factor, v);
}

// This rank's vector k of the tile at `at`, of a tensor that ends at `end`.
template <class Wire, class F>
__device__ __forceinline__ Vector16 load_own(const Params& p, const Session& s, const Wire& wire,
                                             const char* from, size_t at, size_t end, int k) {
  Vector16 v = load<Wire::kLean>(p, from, at + wire.offset(k), end, wire.width());
  if constexpr (!F::kMoves && !Wire::kLean)
    if (p.scales) scale(p, s, v);
  return v;
}

template <class Wire>
__device__ __forceinline__ bool is_there(const Wire& wire, size_t at, size_t end, int k) {
  return !Wire::kSkipsEmpty || at + wire.offset(k) < end;
}

// From one source, when it has landed. The lanes of a warp look together.
template <class Wire>
__device__ __forceinline__ bool take(const Params& p, const Session& s, const Wire& wire,
                                     typename Wire::Raw& raw, int source, int ring, uint64_t step,
                                     int k, bool there) {
  for (Patience patience; !__all_sync(~0u, !there || wire.has_landed(raw, step));) {
    if (patience.is_over(p, s, source)) return false;
    raw = wire.look(source, ring, k);
  }
  return true;
}

// Some vectors of all of `sources`, when all of them have landed. They come at about the same time,
// and one loop for all of them is less code, of which a launch has to fetch every line anew.
template <class Wire, int N, int kSome>
__device__ __forceinline__ bool take_some(const Params& p, const Session& s, const Wire& wire,
                                          typename Wire::Raw (&raw)[N][kSome], uint32_t sources,
                                          int ring, uint64_t step, int first, size_t at,
                                          size_t end) {
  for (Patience patience;;) {
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((sources >> r & 1) != 0)
#pragma unroll
        for (int k = 0; k < kSome; ++k) raw[r][k] = wire.look(r, ring, first + k);
    int late = -1;
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((sources >> r & 1) != 0)
#pragma unroll
        for (int k = 0; k < kSome; ++k)
          if (is_there(wire, at, end, first + k) && !wire.has_landed(raw[r][k], step)) late = r;
    const uint32_t lanes = __ballot_sync(~0u, late >= 0);
    if (lanes == 0) return true;
    late = __shfl_sync(~0u, late, __ffs(static_cast<int>(lanes)) - 1);
    if (patience.is_over(p, s, late)) return false;
  }
}

// Gives into(source, k, vector) for all of `sources`.
template <class Wire, int N, class Into>
__device__ __forceinline__ bool take_tile(const Params& p, const Session& s, const Wire& wire,
                                          uint32_t sources, int ring, uint64_t step, size_t at,
                                          size_t end, Into into) {
  constexpr int kSome = kAtOnce<N, Wire>;
#pragma unroll 1
  for (int first = 0; first < Wire::kVectors; first += kSome) {
    typename Wire::Raw raw[N][kSome];
    if (!take_some(p, s, wire, raw, sources, ring, step, first, at, end)) return false;
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((sources >> r & 1) != 0)
#pragma unroll
        for (int k = 0; k < kSome; ++k) into(r, first + k, Wire::data(raw[r][k]));
  }
  return true;
}

// Gives into(k, vector) of the reduction over `sources` and what is this rank's own, own(k).
template <class Wire, class F, int N, class Own, class Into>
__device__ __forceinline__ bool reduce_tile(const Params& p, const Session& s, const Wire& wire,
                                            uint32_t sources, int ring, uint64_t step, size_t at,
                                            size_t end, Own own, Into into) {
  if constexpr (F::kHot) {
    constexpr int kSome = kAtOnce<N, Wire>;
#pragma unroll 1
    for (int first = 0; first < Wire::kVectors; first += kSome) {
      typename Wire::Raw raw[N][kSome];
      Vector16 mine[kSome];
#pragma unroll
      for (int k = 0; k < kSome; ++k) mine[k] = own(first + k);
      if (!take_some(p, s, wire, raw, sources, ring, step, first, at, end)) return false;
#pragma unroll
      for (int k = 0; k < kSome; ++k) {
        F reducer;
#pragma unroll
        for (int r = 0; r < N; ++r) {
          if ((sources >> r & 1) != 0)
            reducer.step(Wire::data(raw[r][k]), r == 0);
          else if (r == p.rank)
            reducer.step(mine[k], r == 0);
        }
        into(first + k, reducer.end(Wire::kLean ? 1 : p.divisor));
      }
    }
  } else {
#pragma unroll 1
    for (int k = 0; k < Wire::kVectors; ++k) {
      F reducer;
#pragma unroll 1
      for (int r = 0; r < p.size; ++r) {
        Vector16 v;
        if (r == p.rank) {
          v = own(k);
        } else {
          typename Wire::Raw raw = wire.look(r, ring, k);
          if (!take(p, s, wire, raw, r, ring, step, k, is_there(wire, at, end, k))) return false;
          v = Wire::data(raw);
        }
        reducer.step(v, r == 0);
      }
      into(k, reducer.end(p.divisor));
    }
  }
  return true;
}

}  // namespace torch::comms::ctran::kernels
