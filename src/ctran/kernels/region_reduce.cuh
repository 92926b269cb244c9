#pragma once

#include "ctran/kernels/bulk.cuh"
#include "ctran/kernels/region_meeting.cuh"
#include "ctran/kernels/tensor.cuh"
#include "ctran/kernels/visit.hpp"

// Reductions over tensors that all ranks map: every rank makes a part of the result, from all
// tensors where they lie, and writes it to where it is wanted.
namespace torch::comms::ctran::kernels {

// The bytes that this rank reduces, and where the result goes. After the places have been found.
class Operands {
 public:
  __device__ Operands(const RegionParams& p, const Common& common)
      : p_(p), c_(common), range_(made_by(p.collective, p.bytes, p.part, p.rank)) {
    uint64_t places = 0;
    for (int r = 0; r < p.size; ++r) places |= reinterpret_cast<uint64_t>(of(r));
    if (p.write_to == 0) places |= reinterpret_cast<uint64_t>(p.output);
    vectors_ = places % 16 == 0 ? bytes() / 16 : 0;
    unit_ = unit_of(places | bytes());
  }

  __device__ __forceinline__ size_t bytes() const { return range_.end - range_.begin; }
  // The first ones, which are read and written 16 bytes at once.
  __device__ __forceinline__ size_t vectors() const { return vectors_; }
  // How the others are.
  __device__ __forceinline__ uint32_t unit() const { return unit_; }
  __device__ __forceinline__ const char* of(int rank) const {
    return c_.tensors[rank] + range_.begin;
  }
  // Gives into(char*) of each place for the result.
  template <class Into>
  __device__ __forceinline__ void for_results(Into into) const {
    if (p_.collective == Collective::kReduceScatter) return into(p_.output);
#pragma unroll 1
    for (int i = 0; i < p_.size; ++i) {
      const int rank = p_.rank + i < p_.size ? p_.rank + i : p_.rank + i - p_.size;
      if ((p_.write_to >> rank & 1) != 0) into(c_.tensors[rank] + range_.begin);
    }
  }

 private:
  const RegionParams& p_;
  const Common& c_;
  const Range range_;
  size_t vectors_;
  uint32_t unit_;
};

// Never what a cache had before a peer wrote it.
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

// Methods of all ways are for all threads of a block, and return false if the launch has to stop.
//
// What is in no vector, all of it where addresses are not aligned: by all threads, one by one.
template <class F>
__device__ __forceinline__ bool reduce_rest(const RegionParams& p, const Session& s,
                                            const Operands& operands) {
  constexpr uint64_t kLookEvery = 64;
  const size_t bytes = operands.bytes(), groups = quotient_up(bytes, 16),
               stride = static_cast<size_t>(p.blocks) * kRegionThreads;
  uint64_t turn = 0;
#pragma unroll 1
  for (size_t base = operands.vectors() + size_t{blockIdx.x} * kRegionThreads; base < groups;
       base += stride) {
    if (++turn % kLookEvery == 0 &&
        __syncthreads_or(threadIdx.x == 0 && must_stop(p, s, -1)) != 0)
      return false;
    const size_t at = (base + threadIdx.x) * 16;
    if (at >= bytes) continue;
    const auto length = static_cast<uint32_t>(bytes - at < 16 ? bytes - at : 16);
    F reducer;
#pragma unroll 1
    for (int r = 0; r < p.size; ++r)
      reducer.step(read_some(operands.of(r) + at, length, operands.unit()), r == 0);
    alignas(16) char made[16];
    *reinterpret_cast<Vector16*>(made) = reducer.end(p.divisor);
    operands.for_results([&](char* to) { copy_units(to + at, made, length, operands.unit()); });
  }
  return true;
}

// By threads, which read some vectors of all tensors at once.
template <class F, int N>
class ReduceByThreads {
 public:
  __device__ ReduceByThreads(const RegionParams& p, const Session& s) : p_(p), s_(s) {}

  __device__ __forceinline__ bool reduce(const Operands& operands) const {
    const size_t vectors = operands.vectors(),
                 stride = static_cast<size_t>(p_.blocks) * kRegionThreads;
    uint64_t turn = 0;
#pragma unroll 1
    for (size_t base = size_t{blockIdx.x} * kRegionThreads; base < vectors;
         base += stride * kAtOnce) {
      if (++turn % kLookEvery == 0 &&
          __syncthreads_or(threadIdx.x == 0 && must_stop(p_, s_, -1)) != 0)
        return false;
      some(operands, base + threadIdx.x, stride, vectors);
    }
    return true;
  }
  __device__ __forceinline__ void finish() const {}

 private:
  static constexpr int kAtOnce = F::kHot ? 16 / N : 1;
  static constexpr uint64_t kLookEvery = 64;

  __device__ __forceinline__ void some(const Operands& operands, size_t first, size_t stride,
                                       size_t vectors) const {
    Vector16 made[kAtOnce];
    if constexpr (F::kHot) {
      Vector16 v[N][kAtOnce];
#pragma unroll
      for (int r = 0; r < N; ++r)
        if (r < p_.size)
#pragma unroll
          for (int k = 0; k < kAtOnce; ++k)
            if (const size_t i = first + static_cast<size_t>(k) * stride; i < vectors)
              v[r][k] = load_volatile(operands.of(r) + i * 16);
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k) {
        F reducer;
#pragma unroll
        for (int r = 0; r < N; ++r)
          if (r < p_.size) reducer.step(v[r][k], r == 0);
        made[k] = reducer.end(p_.divisor);
      }
    } else if (first < vectors) {
      F reducer;
#pragma unroll 1
      for (int r = 0; r < p_.size; ++r)
        reducer.step(load_volatile(operands.of(r) + first * 16), r == 0);
      made[0] = reducer.end(p_.divisor);
    }
    operands.for_results([&](char* to) {
#pragma unroll
      for (int k = 0; k < kAtOnce; ++k)
        if (const size_t i = first + static_cast<size_t>(k) * stride; i < vectors)
          *reinterpret_cast<Vector16*>(to + i * 16) = made[k];
    });
  }

  const RegionParams& p_;
  const Session& s_;
};

#if __CUDA_ARCH__ >= 900
// The copy unit brings tiles of all tensors and takes results away, while the threads reduce others
// in shared memory.
template <class F, int N>
class ReduceByBulk {
 public:
  __device__ ReduceByBulk(const RegionParams& p, const Session& s) : p_(p), s_(s) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < kReduceStages; ++i) bulk::make_barrier(barriers()[i]);
    bulk::barriers_are_made();
    bulk::fence_unit();
  }

  // After a barrier of the block.
  __device__ __forceinline__ bool reduce(const Operands& operands) {
    const size_t bytes = operands.vectors() * 16;
    const uint64_t tiles = quotient_up(bytes, kTile), own = blockIdx.x,
                   blocks = static_cast<uint64_t>(p_.blocks),
                   count = tiles <= own ? 0 : (tiles - own + blocks - 1) / blocks;
    const auto at = [&](uint64_t i) { return (own + i * blocks) * kTile; };
    const auto length = [&](uint64_t i) {
      const size_t left = bytes - at(i);
      return static_cast<uint32_t>(left < kTile ? left : kTile);
    };
    const auto load = [&](uint64_t i) {
      uint64_t& barrier = barriers()[i % kReduceStages];
      const uint32_t some = length(i);
      bulk::expect(barrier, some * static_cast<uint32_t>(p_.size));
#pragma unroll 1
      for (int r = 0; r < p_.size; ++r)
        bulk::bring(tile(i, r), operands.of(r) + at(i), some, barrier);
    };
    const auto wait = [&](uint64_t i) {
      bulk::wait_for_load(barriers()[i % kReduceStages],
                          static_cast<uint32_t>(i / kReduceStages) & 1);
    };
    if (threadIdx.x == 0) {
      bulk::fence_unit();
      for (uint64_t i = 0; i < count && i < kReduceLoads; ++i) load(i);
    }
    bool goes_on = true;
    uint64_t i = 0;
#pragma unroll 1
    for (; i < count && goes_on; ++i) {
      wait(i);
      combine(i, length(i));
      bulk::fence_unit_shared();
      const bool looks = i % kLookEvery == kLookEvery - 1;
      if (looks)
        goes_on = __syncthreads_or(threadIdx.x == 0 && must_stop(p_, s_, -1)) == 0;
      else
        __syncthreads();
      if (threadIdx.x != 0) continue;
      operands.for_results([&](char* to) { bulk::take(to + at(i), tile(i, 0), length(i)); });
      bulk::commit();
      if (i + kReduceLoads >= count) continue;
      // What went away from that stage.
      bulk::wait_for_reads<kReduceStages - kReduceLoads>();
      load(i + kReduceLoads);
    }
    // After a stop: what is under way ends before the block does.
    const uint64_t loaded = i + kReduceLoads < count ? i + kReduceLoads : count;
    for (; i < loaded; ++i) wait(i);
    if (threadIdx.x == 0) bulk::wait_for_reads<0>();
    return goes_on;
  }
  __device__ __forceinline__ void finish() const {
    if (threadIdx.x == 0) bulk::wait_for_stores(), bulk::fence_unit();
  }

 private:
  static constexpr size_t kTile = kReduceStage / N;
  static constexpr uint64_t kLookEvery = 64;

  __device__ __forceinline__ static uint64_t* barriers() {
    __shared__ uint64_t all[kReduceStages];
    return all;
  }
  // Of a rank's tensor; the result takes the place of the first one's.
  __device__ __forceinline__ static char* tile(uint64_t i, int rank) {
    extern __shared__ __align__(128) char stages[];
    return stages + i % kReduceStages * kReduceStage + static_cast<size_t>(rank) * kTile;
  }
  __device__ __forceinline__ void combine(uint64_t i, uint32_t bytes) const {
    for (uint32_t at = threadIdx.x * 16; at < bytes; at += kRegionThreads * 16) {
      F reducer;
#pragma unroll
      for (int r = 0; r < N; ++r)
        if (r < p_.size)
          reducer.step(*reinterpret_cast<const Vector16*>(tile(i, r) + at), r == 0);
      *reinterpret_cast<Vector16*>(tile(i, 0) + at) = reducer.end(p_.divisor);
    }
  }

  const RegionParams& p_;
  const Session& s_;
};
#endif

template <class Way, class F>
__device__ __forceinline__ void reduce_on_region(const RegionParams& p) {
  follow_previous();
  __shared__ Common common;
  uint32_t ticket = 0;
  const Meeting meeting(p, common);
  Way way(p, common.s);
  const auto run = [&] {
    if (threadIdx.x == 0) common.tensors[p.rank] = const_cast<char*>(p.input);
    meeting.tell_place(true);
    if (!meeting.find_places(true)) return false;
    const Operands operands(p, common);
    if (!way.reduce(operands) || !reduce_rest<F>(p, common.s, operands)) return false;
    way.finish();
    meeting.tell(1);
    return meeting.hear(p.pushed_from, 1);
  };
  bool done = begin(p, common.s, false, ticket);
  if (done) done = run();
  end(p, common.s, done, ticket);
}

template <class F, int N>
__global__ void __launch_bounds__(kRegionThreads, 1)
    RegionReduceByThreads(const __grid_constant__ RegionParams p) {
  reduce_on_region<ReduceByThreads<F, N>, F>(p);
}
template <class F, int N>
__global__ void __launch_bounds__(kRegionThreads, 1)
    RegionReduceByBulk(const __grid_constant__ RegionParams p) {
#if __CUDA_ARCH__ >= 900
  reduce_on_region<ReduceByBulk<F, N>, F>(p);
#else
  reduce_on_region<ReduceByThreads<F, N>, F>(p);
#endif
}

// For so many ranks; what is compiled for size has one kernel for all.
struct FindRegionReduction {
  Carrier carrier;
  int ranks;

  template <class F>
  RegionKernel operator()() const {
    if constexpr (F::kHot) {
      if (ranks <= 2) return of<F, 2>();
      if (ranks <= 4) return of<F, 4>();
      return of<F, kMaxRanks>();
    } else {
      return {reinterpret_cast<const void*>(&RegionReduceByThreads<F, kMaxRanks>), 0};
    }
  }

 private:
  template <class F, int N>
  RegionKernel of() const {
    if (carrier == Carrier::kBulk)
      return {reinterpret_cast<const void*>(&RegionReduceByBulk<F, N>),
              size_t{kReduceStages} * kReduceStage};
    return {reinterpret_cast<const void*>(&RegionReduceByThreads<F, N>), 0};
  }
};

}  // namespace torch::comms::ctran::kernels
