#include "ctran/kernels/find.hpp"
#include "ctran/kernels/quantized.hpp"
#include "ctran/kernels/rounding.hpp"
#include "ctran/kernels/run.cuh"

// One hop: each part to its owner as bfloat16, eight elements to a vector, and those of others as
// they come.
namespace torch::comms::ctran::kernels {
namespace {

constexpr int kElements = 8;
static_assert(kElements == kDraws);

struct Floats {
  float at[kElements];
};

// `count` (4 or 8) elements from element `first`, a multiple of 4, of a part.
__device__ __forceinline__ Floats load_floats(const QuantizedParams& p, const char* part,
                                              size_t first, int count) {
  const float* const from = reinterpret_cast<const float*>(part);
  Floats v{};
#pragma unroll
  for (int i = 0; i < kElements; i += 4) {
    const size_t at = first + i;
    if (i >= count) break;
    if (p.aligned && at + 4 <= p.count) {
      const float4 four = *reinterpret_cast<const float4*>(from + at);
      v.at[i] = four.x, v.at[i + 1] = four.y, v.at[i + 2] = four.z, v.at[i + 3] = four.w;
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (at + j < p.count) v.at[i + j] = from[at + j];
    }
  }
  return v;
}
__device__ __forceinline__ void store_floats(const QuantizedParams& p, size_t first, int count,
                                             const Floats& v) {
  float* const to = reinterpret_cast<float*>(p.output);
#pragma unroll
  for (int i = 0; i < kElements; i += 4) {
    const size_t at = first + i;
    if (i >= count) break;
    if (p.aligned && at + 4 <= p.count) {
      *reinterpret_cast<float4*>(to + at) =
          make_float4(v.at[i], v.at[i + 1], v.at[i + 2], v.at[i + 3]);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (at + j < p.count) to[at + j] = v.at[i + j];
    }
  }
}

template <class Wire, int N>
class Quantized {
 public:
  __device__ Quantized(const QuantizedParams& p, const Session& s) : p_(p), s_(s), wire_(p, s) {}

  __device__ __forceinline__ bool run() {
    seed_ = *p_.seed;
    if (p_.steps == 0) return true;
    send(0);
#pragma unroll 1
    for (uint64_t step = 0; step < p_.steps; ++step) {
      if (step + 1 < p_.steps) send(step + 1);
      if (!receive(step)) return false;
    }
    return true;
  }

 private:
  __device__ __forceinline__ size_t tile_of(uint64_t step) const {
    return step * Wire::workers() + wire_.worker();
  }
  // Of a lane's vector k: its first element, and how many it holds.
  __device__ __forceinline__ size_t first_of(size_t at, int k) const {
    return (at + wire_.offset(k)) / sizeof(uint16_t);
  }
  __device__ __forceinline__ int elements() const {
    return static_cast<int>(wire_.width() / sizeof(uint16_t));
  }

  // Half a group is in a lane that has also a flag.
  __device__ __forceinline__ Vector16 rounded_of(const Floats& v, size_t first, int peer) const {
    const Words draws = draws_of(seed_, p_.rank, peer, first / kDraws);
    const bool second_half = first % kDraws != 0;
    uint32_t words[kElements / 2];
#pragma unroll
    for (int i = 0; i < kElements / 2; ++i) {
      const uint32_t chance = i < 2 && second_half ? draws.word[i + 2] : draws.word[i];
      words[i] = uint32_t{rounded(v.at[2 * i], chance & 0xffff)} |
                 uint32_t{rounded(v.at[2 * i + 1], chance >> 16)} << 16;
    }
    return {words[0], words[1], words[2], words[3]};
  }

  __device__ __forceinline__ void send(uint64_t step) const {
    const size_t tile = tile_of(step), at = tile * Wire::kTile;
    if (tile >= p_.tiles) return;
#pragma unroll 1
    for (int i = 1; i < p_.size; ++i) {
      const int peer = rank_after(p_.rank, i, p_.size);
      const char* const part = p_.input + peer * p_.send_stride;
      Vector16 v[Wire::kVectors];
#pragma unroll
      for (int k = 0; k < Wire::kVectors; ++k) {
        const size_t first = first_of(at, k);
        v[k] = rounded_of(load_floats(p_, part, first, elements()), first, peer);
      }
#pragma unroll
      for (int k = 0; k < Wire::kVectors; ++k)
        if (is_there(wire_, at, p_.bytes, k)) wire_.put(peer, step % kRing, step, k, v[k]);
    }
  }

  __device__ __forceinline__ static Floats widened(const Vector16& v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    Floats wide;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      wide.at[i] = BFloat16::decode(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    return wide;
  }

  __device__ __forceinline__ bool receive(uint64_t step) const {
    constexpr int kSome = kAtOnce<N, Wire>;
    const size_t tile = tile_of(step), at = tile * Wire::kTile;
    if (tile >= p_.tiles) return true;
#pragma unroll 1
    for (int first = 0; first < Wire::kVectors; first += kSome) {
      typename Wire::Raw raw[N][kSome];
      Floats mine[kSome];
#pragma unroll
      for (int k = 0; k < kSome; ++k)
        mine[k] = load_floats(p_, p_.own, first_of(at, first + k), elements());
      if (!take_some<Wire, N>(p_, s_, wire_, raw, p_.receive_from, step % kRing, step, first, at,
                              p_.bytes))
        return false;
#pragma unroll
      for (int k = 0; k < kSome; ++k) {
        Floats sum;
#pragma unroll
        for (int r = 0; r < N; ++r) {
          if (r >= p_.size) continue;
          const Floats v = r == p_.rank ? mine[k] : widened(Wire::data(raw[r][k]));
#pragma unroll
          for (int i = 0; i < kElements; ++i) sum.at[i] = r == 0 ? v.at[i] : sum.at[i] + v.at[i];
        }
        if (p_.divisor != 1)
#pragma unroll
          for (int i = 0; i < kElements; ++i) sum.at[i] /= static_cast<float>(p_.divisor);
        store_floats(p_, first_of(at, first + k), elements(), sum);
      }
    }
    return true;
  }

  const QuantizedParams& p_;
  const Session& s_;
  Wire wire_;
  uint64_t seed_ = 0;
};

template <class Wire, int N>
__global__ void __launch_bounds__(kMostThreads, 1)
    ReduceScatterQuantized(const __grid_constant__ QuantizedParams p) {
  run<Quantized<Wire, N>, false>(p);
}

template <class Wire, int N>
const void* address() {
  return reinterpret_cast<const void*>(&ReduceScatterQuantized<Wire, N>);
}
template <class Wire>
const void* for_ranks(int ranks) {
  if (ranks <= 2) return address<Wire, 2>();
  return ranks <= 4 ? address<Wire, 4>() : address<Wire, 8>();
}

}  // namespace

const void* find_reduce_scatter_quantized(WireKind wire, int ranks) {
  switch (wire) {
    case WireKind::kLL:
      return for_ranks<LLWire>(ranks);
    case WireKind::kLine:
      return for_ranks<LineWire>(ranks);
    case WireKind::kLongLine:
      return address<LongLineWire, 2>();  // of two ranks alone
    default:
      return nullptr;
  }
}

}  // namespace torch::comms::ctran::kernels
