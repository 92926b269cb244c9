#pragma once

#include "ctran/kernels/protocol/packet_protocols.cuh"
#include "ctran/kernels/protocol/tensor.cuh"

// What a worker does with a tile: it sends the tile, receives the tiles of peers, and reduces them.
namespace torch::comms::ctran::kernels {

template <int N, class Protocol>
inline constexpr int kAtOnce = Protocol::kVectors < 8 / N ? Protocol::kVectors : 8 / N;

// Whether a worker reads the tiles for all peers before it sends the first. With more ranks they
// are too many.
template <int N>
inline constexpr bool kPartsTogether = N <= 4;

static __device__ __noinline__ void scale(const CollectiveParams& p, const LaunchContext& s,
                                          Vector16& v) {
  v = scaled(p.dtype, s.factor, v);
}

// Loads this rank's vector k of the tile at `at`, scaled if the call has a factor. The tensor ends
// at `end`.
template <class Protocol, class F>
__device__ __forceinline__ Vector16 load_own(const CollectiveParams& p, const LaunchContext& s,
                                             const Protocol& protocol, const char* from, size_t at,
                                             size_t end, int k) {
  Vector16 v = load<Protocol::kLean>(p, from, at + protocol.offset(k), end, protocol.width());
  if constexpr (!F::kMoves && !Protocol::kLean)
    if (p.has_factor) scale(p, s, v);
  return v;
}

template <class Protocol>
__device__ __forceinline__ bool is_there(const Protocol& protocol, size_t at, size_t end, int k) {
  return !Protocol::kSkipsEmpty || at + protocol.offset(k) < end;
}

// Waits until a vector of one source has arrived. All lanes of a warp poll together.
// Returns: false if the launch has to stop.
template <class Protocol>
__device__ __forceinline__ bool wait_for_vector(const CollectiveParams& p, const LaunchContext& s,
                                                const Protocol& protocol,
                                                typename Protocol::Raw& raw, int source, int ring,
                                                uint64_t step, int k, bool there) {
  for (StopChecker stop_checker; !__all_sync(~0u, !there || protocol.has_landed(raw, step));) {
    if (stop_checker.must_stop(p, s, source)) return false;
    raw = protocol.load_raw(source, ring, k);
  }
  return true;
}

// Waits until some vectors of all `sources` have arrived. They arrive at about the same time. One
// loop for all of them is less code, every cache line of which a launch has to fetch again.
// Returns: false if the launch has to stop.
template <class Protocol, int N, int kSome>
__device__ __forceinline__ bool wait_for_vectors(const CollectiveParams& p, const LaunchContext& s,
                                                 const Protocol& protocol,
                                                 typename Protocol::Raw (&raw)[N][kSome],
                                                 uint32_t sources, int ring, uint64_t step,
                                                 int first, size_t at, size_t end) {
  for (StopChecker stop_checker;;) {
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((sources >> r & 1) != 0)
#pragma unroll
        for (int k = 0; k < kSome; ++k) raw[r][k] = protocol.load_raw(r, ring, first + k);
    int late = -1;
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((sources >> r & 1) != 0)
#pragma unroll
        for (int k = 0; k < kSome; ++k)
          if (is_there(protocol, at, end, first + k) && !protocol.has_landed(raw[r][k], step))
            late = r;
    const uint32_t lanes = __ballot_sync(~0u, late >= 0);
    if (lanes == 0) return true;
    late = __shfl_sync(~0u, late, __ffs(static_cast<int>(lanes)) - 1);
    if (stop_checker.must_stop(p, s, late)) return false;
  }
}

// Receives a tile of all `sources` and calls into(source, k, vector) for each vector.
// Returns: false if the launch has to stop.
template <class Protocol, int N, class Into>
__device__ __forceinline__ bool receive_tile(const CollectiveParams& p, const LaunchContext& s,
                                             const Protocol& protocol, uint32_t sources, int ring,
                                             uint64_t step, size_t at, size_t end, Into into) {
  constexpr int kSome = kAtOnce<N, Protocol>;
#pragma unroll 1
  for (int first = 0; first < Protocol::kVectors; first += kSome) {
    typename Protocol::Raw raw[N][kSome];
    if (!wait_for_vectors(p, s, protocol, raw, sources, ring, step, first, at, end)) return false;
#pragma unroll
    for (int r = 0; r < N; ++r)
      if ((sources >> r & 1) != 0)
#pragma unroll
        for (int k = 0; k < kSome; ++k) into(r, first + k, Protocol::data(raw[r][k]));
  }
  return true;
}

// Reduces the tiles of `sources` and this rank's own vectors own(k), in rank order, and calls
// into(k, vector) for each result.
// Returns: false if the launch has to stop.
template <class Protocol, class F, int N, class Own, class Into>
__device__ __forceinline__ bool reduce_tile(const CollectiveParams& p, const LaunchContext& s,
                                            const Protocol& protocol, uint32_t sources, int ring,
                                            uint64_t step, size_t at, size_t end, Own own,
                                            Into into) {
  if constexpr (F::kHot) {
    constexpr int kSome = kAtOnce<N, Protocol>;
#pragma unroll 1
    for (int first = 0; first < Protocol::kVectors; first += kSome) {
      typename Protocol::Raw raw[N][kSome];
      Vector16 mine[kSome];
#pragma unroll
      for (int k = 0; k < kSome; ++k) mine[k] = own(first + k);
      if (!wait_for_vectors(p, s, protocol, raw, sources, ring, step, first, at, end)) return false;
#pragma unroll
      for (int k = 0; k < kSome; ++k) {
        F reducer;
#pragma unroll
        for (int r = 0; r < N; ++r) {
          if ((sources >> r & 1) != 0)
            reducer.step(Protocol::data(raw[r][k]), r == 0);
          else if (r == p.rank)
            reducer.step(mine[k], r == 0);
        }
        into(first + k, reducer.end(Protocol::kLean ? 1 : p.divisor));
      }
    }
  } else {
#pragma unroll 1
    for (int k = 0; k < Protocol::kVectors; ++k) {
      F reducer;
#pragma unroll 1
      for (int r = 0; r < p.size; ++r) {
        Vector16 v;
        if (r == p.rank) {
          v = own(k);
        } else {
          typename Protocol::Raw raw = protocol.load_raw(r, ring, k);
          if (!wait_for_vector(p, s, protocol, raw, r, ring, step, k,
                               is_there(protocol, at, end, k)))
            return false;
          v = Protocol::data(raw);
        }
        reducer.step(v, r == 0);
      }
      into(k, reducer.end(p.divisor));
    }
  }
  return true;
}

}  // namespace torch::comms::ctran::kernels
