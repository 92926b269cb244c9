#include "ctran/kernels/collectives/quantized.hpp"
#include "ctran/kernels/collectives/stochastic_rounding.hpp"
#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/protocol/kernel_main.cuh"

// Collective of one hop: each part goes to its owner as bfloat16, eight elements in a vector. Parts
// of peers are added as they arrive.
namespace torch::comms::ctran::kernels {
namespace {

constexpr int kElements = 8;
static_assert(kElements == kDraws);

struct QuantizedFloats {
  float at[kElements];
};

// Loads `count` (4 or 8) elements of a part from element `first` on, a multiple of 4.
__device__ __forceinline__ QuantizedFloats load_floats(const QuantizedParams& p, const char* part,
                                                       size_t first, int count) {
  const float* const from = reinterpret_cast<const float*>(part);
  QuantizedFloats v{};
#pragma unroll
  for (int i = 0; i < kElements; i += 4) {
    const size_t at = first + i;
    if (i >= count) break;
    if (p.is_aligned && at + 4 <= p.count) {
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
                                             const QuantizedFloats& v) {
  float* const to = reinterpret_cast<float*>(p.output);
#pragma unroll
  for (int i = 0; i < kElements; i += 4) {
    const size_t at = first + i;
    if (i >= count) break;
    if (p.is_aligned && at + 4 <= p.count) {
      *reinterpret_cast<float4*>(to + at) =
          make_float4(v.at[i], v.at[i + 1], v.at[i + 2], v.at[i + 3]);
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j)
        if (at + j < p.count) to[at + j] = v.at[i + j];
    }
  }
}

template <class Protocol, int N>
class Quantized {
 public:
  __device__ Quantized(const QuantizedParams& p, const LaunchContext& s)
      : p_(p), s_(s), protocol_(p, s) {}

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
    return step * Protocol::workers() + protocol_.worker();
  }
  // Returns the first element of a lane's vector k; elements() returns how many the vector holds.
  __device__ __forceinline__ size_t first_of(size_t at, int k) const {
    return (at + protocol_.offset(k)) / sizeof(uint16_t);
  }
  __device__ __forceinline__ int elements() const {
    return static_cast<int>(protocol_.width() / sizeof(uint16_t));
  }

  // A lane that also holds a flag has half a group of elements.
  __device__ __forceinline__ Vector16 round_vector(const QuantizedFloats& v, size_t first,
                                                   int peer) const {
    const PhiloxWords draws = draws_of(seed_, p_.rank, peer, first / kDraws);
    const bool second_half = first % kDraws != 0;
    uint32_t words[kElements / 2];
#pragma unroll
    for (int i = 0; i < kElements / 2; ++i) {
      const uint32_t chance = i < 2 && second_half ? draws.word[i + 2] : draws.word[i];
      words[i] = uint32_t{round_stochastically(v.at[2 * i], chance & 0xffff)} |
                 uint32_t{round_stochastically(v.at[2 * i + 1], chance >> 16)} << 16;
    }
    return {words[0], words[1], words[2], words[3]};
  }

  __device__ __forceinline__ void send(uint64_t step) const {
    const size_t tile = tile_of(step), at = tile * Protocol::kTile;
    if (tile >= p_.tiles) return;
#pragma unroll 1
    for (int i = 1; i < p_.size; ++i) {
      const int peer = rank_after(p_.rank, i, p_.size);
      const char* const part = p_.input + peer * p_.send_stride;
      Vector16 v[Protocol::kVectors];
#pragma unroll
      for (int k = 0; k < Protocol::kVectors; ++k) {
        const size_t first = first_of(at, k);
        v[k] = round_vector(load_floats(p_, part, first, elements()), first, peer);
      }
#pragma unroll
      for (int k = 0; k < Protocol::kVectors; ++k)
        if (is_there(protocol_, at, p_.bytes, k)) protocol_.put(peer, step % kRing, step, k, v[k]);
    }
  }

  __device__ __forceinline__ static QuantizedFloats widened(const Vector16& v) {
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
    QuantizedFloats wide;
#pragma unroll
    for (int i = 0; i < kElements; ++i)
      wide.at[i] = BFloat16::decode(static_cast<uint16_t>(words[i / 2] >> (i % 2 * 16)));
    return wide;
  }

  __device__ __forceinline__ bool receive(uint64_t step) const {
    constexpr int kSome = kAtOnce<N, Protocol>;
    const size_t tile = tile_of(step), at = tile * Protocol::kTile;
    if (tile >= p_.tiles) return true;
#pragma unroll 1
    for (int first = 0; first < Protocol::kVectors; first += kSome) {
      typename Protocol::Raw raw[N][kSome];
      QuantizedFloats mine[kSome];
#pragma unroll
      for (int k = 0; k < kSome; ++k)
        mine[k] = load_floats(p_, p_.own, first_of(at, first + k), elements());
      if (!wait_for_vectors<Protocol, N>(p_, s_, protocol_, raw, p_.receive_from, step % kRing,
                                         step, first, at, p_.bytes))
        return false;
#pragma unroll
      for (int k = 0; k < kSome; ++k) {
        QuantizedFloats sum;
#pragma unroll
        for (int r = 0; r < N; ++r) {
          if (r >= p_.size) continue;
          const QuantizedFloats v = r == p_.rank ? mine[k] : widened(Protocol::data(raw[r][k]));
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
  const LaunchContext& s_;
  Protocol protocol_;
  uint64_t seed_ = 0;
};

template <class Protocol, int N>
__global__ void __launch_bounds__(kMostThreads, 1)
    ReduceScatterQuantized(const __grid_constant__ QuantizedParams p) {
  run<Quantized<Protocol, N>, false>(p);
}

template <class Protocol, int N>
const void* address() {
  return reinterpret_cast<const void*>(&ReduceScatterQuantized<Protocol, N>);
}
template <class Protocol>
const void* for_ranks(int ranks) {
  if (ranks <= 2) return address<Protocol, 2>();
  return ranks <= 4 ? address<Protocol, 4>() : address<Protocol, 8>();
}

}  // namespace

const void* find_reduce_scatter_quantized(PacketProtocol protocol, int ranks) {
  switch (protocol) {
    case PacketProtocol::kLL:
      return for_ranks<LLProtocol>(ranks);
    case PacketProtocol::kLL128:
      return for_ranks<LL128Protocol>(ranks);
    case PacketProtocol::kLongLL128:
      return address<LongLL128Protocol, 2>();  // only for teams of two ranks
    default:
      return nullptr;
  }
}

}  // namespace torch::comms::ctran::kernels
