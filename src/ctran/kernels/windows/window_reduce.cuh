#pragma once

#include "ctran/kernels/collectives/reducer_visit.hpp"
#include "ctran/kernels/protocol/tensor.cuh"
#include "ctran/kernels/windows/window_sync.cuh"

// Reductions over tensors in a window: every rank makes a part of the result from all tensors where
// they lie, and writes it to the ranks that need it.
namespace torch::comms::ctran::kernels {

// The bytes that this rank reduces, and the destinations of the result. Constructed after the
// locations have arrived.
class WindowOperands {
 public:
  __device__ WindowOperands(const WindowCollectiveParams& p, const WindowBlockState& common)
      : p_(p), c_(common), range_(p.reduce_range) {
    uint64_t address_bits = 0;
    for (int r = 0; r < p.size; ++r) address_bits |= reinterpret_cast<uint64_t>(of(r));
    if (p.write_to == 0) address_bits |= reinterpret_cast<uint64_t>(p.output);
    aligned_ = address_bits % 16 == 0;
    unit_ = unit_of(address_bits | bytes());
  }

  __device__ __forceinline__ size_t bytes() const { return range_.end - range_.begin; }
  // Depends on the tensors of all ranks, so all ranks of an all-reduce find the same.
  __device__ __forceinline__ bool are_aligned() const { return aligned_; }
  // The first bytes, which are read and written as vectors of 16 bytes.
  __device__ __forceinline__ size_t vectors() const { return aligned_ ? bytes() / 16 : 0; }
  // The unit in which the other bytes are read and written.
  __device__ __forceinline__ uint32_t unit() const { return unit_; }
  __device__ __forceinline__ const char* of(int rank) const {
    return c_.tensors[rank] + range_.begin;
  }
  // Calls into(char*) for each destination of the result.
  template <class Into>
  __device__ __forceinline__ void for_results(Into into) const {
    if (p_.write_to == 0) return into(p_.output);
#pragma unroll 1
    for (int i = 0; i < p_.size; ++i) {
      const int rank = rank_after(p_.rank, i, p_.size);
      if ((p_.write_to >> rank & 1) != 0) into(c_.tensors[rank] + range_.begin);
    }
  }

 private:
  const WindowCollectiveParams& p_;
  const WindowBlockState& c_;
  const TensorRange range_;
  bool aligned_;
  uint32_t unit_;
};

// Reads memory that peers write, never from a cache line that is older than their writes.
template <class T>
__device__ __forceinline__ void read_units(char* to, const char* from, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i += sizeof(T))
    *reinterpret_cast<T*>(to + i) = *reinterpret_cast<const volatile T*>(from + i);
}
static __device__ __noinline__ Vector16 read_some(const char* from, uint32_t bytes, uint32_t unit) {
  alignas(16) char some[16] = {};
  if (unit == 8)
    read_units<uint64_t>(some, from, bytes);
  else if (unit == 4)
    read_units<uint32_t>(some, from, bytes);
  else if (unit == 2)
    read_units<uint16_t>(some, from, bytes);
  else
    read_units<uint8_t>(some, from, bytes);
  return *reinterpret_cast<const Vector16*>(some);
}

// Reduces the bytes that are in no vector, or all of them if addresses are not aligned, 16 bytes of
// each thread at once. For all threads of a block.
// Returns: false if the launch has to stop.
template <class F>
__device__ __forceinline__ bool reduce_rest(const WindowCollectiveParams& p, const LaunchContext& s,
                                            const WindowOperands& operands) {
  constexpr uint64_t kLookEvery = 64;
  const size_t bytes = operands.bytes(), groups = quotient_up(bytes, 16),
               stride = static_cast<size_t>(p.blocks) * blockDim.x;
  uint64_t turn = 0;
#pragma unroll 1
  for (size_t base = operands.vectors() + size_t{blockIdx.x} * blockDim.x; base < groups;
       base += stride) {
    if (++turn % kLookEvery == 0 && block_must_stop(p, s)) return false;
    const size_t at = (base + threadIdx.x) * 16;
    if (at >= bytes) continue;
    const auto length = static_cast<uint32_t>(bytes - at < 16 ? bytes - at : 16);
    F reducer;
#pragma unroll 1
    for (int r = 0; r < p.size; ++r)
      reducer.step(read_some(operands.of(r) + at, length, operands.unit()), r == 0);
    alignas(16) char result[16];
    *reinterpret_cast<Vector16*>(result) = reducer.end(p.divisor);
    operands.for_results([&](char* to) { copy_units(to + at, result, length, operands.unit()); });
  }
  return true;
}

// Reduces the vectors; each thread reads some of all tensors at once. With 16 blocks, an all-reduce
// of 16 MB on 2 H100 takes 66 us; by the TMA units, through shared memory, it took 101 us. reduce()
// is for all threads of a block, and returns false if the launch has to stop.
template <class F, int N>
class VectorReduction {
 public:
  __device__ VectorReduction(const WindowCollectiveParams& p, const LaunchContext& s)
      : p_(p), s_(s) {}

  __device__ __forceinline__ bool reduce(const WindowOperands& operands) const {
    constexpr size_t kOfBlock = size_t{kWindowThreads} * kAtOnce;
    const size_t vectors = operands.vectors(), all = static_cast<size_t>(p_.blocks) * kOfBlock;
    uint64_t turn = 0;
#pragma unroll 1
    for (size_t base = blockIdx.x * kOfBlock; base < vectors; base += all) {
      if (++turn % kLookEvery == 0 && block_must_stop(p_, s_)) return false;
      reduce_vectors(operands, base + threadIdx.x, vectors);
    }
    return true;
  }

 private:
  static constexpr int kAtOnce = F::kHot ? 16 / N : 1;
  static constexpr uint64_t kLookEvery = 64;

  // Reads from the next rank on, so that not all ranks read from the same one, and adds from rank 0
  // on.
  __device__ __forceinline__ void reduce_vectors(const WindowOperands& operands, size_t first,
                                                 size_t vectors) const {
    Vector16 result[kAtOnce];
    if constexpr (F::kHot) {
      Vector16 v[N][kAtOnce];
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i < p_.size) {
          const int rank = rank_after(p_.rank, i + 1, p_.size);
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k)
            if (const size_t at = first + k * kWindowThreads; at < vectors)
              v[i][k] = load_volatile(operands.of(rank) + at * 16);
        }
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        F reducer;
#pragma unroll
        for (int r = 0; r < N; ++r)
          if (r < p_.size) {
            const int wanted = r > p_.rank ? r - p_.rank - 1 : r - p_.rank - 1 + p_.size;
            Vector16 of_rank = v[0][k];
#pragma unroll
            for (int i = 1; i < N; ++i)
              if (i == wanted) of_rank = v[i][k];
            reducer.step(of_rank, r == 0);
          }
        result[k] = reducer.end(p_.divisor);
      }
    } else if (first < vectors) {
      F reducer;
#pragma unroll 1
      for (int r = 0; r < p_.size; ++r)
        reducer.step(load_volatile(operands.of(r) + first * 16), r == 0);
      result[0] = reducer.end(p_.divisor);
    }
    operands.for_results([&](char* to) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (const size_t at = first + k * kWindowThreads; at < vectors)
          *reinterpret_cast<Vector16*>(to + at * 16) = result[k];
    });
  }

  const WindowCollectiveParams& p_;
  const LaunchContext& s_;
};

template <class F, int N>
__global__ void __launch_bounds__(kWindowThreads, 1)
    WindowReduce(const __grid_constant__ WindowCollectiveParams p) {
  follow_previous();
  __shared__ WindowBlockState common;
  uint32_t ticket = 0;
  const WindowSync window_sync(p, common);
  const auto reduce = [&] {
    const WindowOperands operands(p, common);
    return VectorReduction<F, N>(p, common.s).reduce(operands) &&
           reduce_rest<F>(p, common.s, operands);
  };
  const auto run = [&] {
    if (threadIdx.x == 0) common.tensors[p.rank] = const_cast<char*>(p.input);
    window_sync.publish_location(true);
    if (!window_sync.wait_for_locations(true) || !reduce()) return false;
    window_sync.signal(1);
    return window_sync.wait(p.pushed_from, 1);
  };
  bool done = begin(p, common.s, load_header(p), false, ticket);
  if (done) done = run();
  end(p, common.s, done, ticket);
}

// Finds the kernel for `ranks` ranks. A reducer that is compiled for size has one kernel for all
// numbers of ranks.
struct FindWindowReduction {
  int ranks;

  template <class F>
  const void* operator()() const {
    if constexpr (F::kHot) {
      if (ranks <= 2) return reinterpret_cast<const void*>(&WindowReduce<F, 2>);
      if (ranks <= 4) return reinterpret_cast<const void*>(&WindowReduce<F, 4>);
    }
    return reinterpret_cast<const void*>(&WindowReduce<F, kMaxRanks>);
  }
};

}  // namespace torch::comms::ctran::kernels
