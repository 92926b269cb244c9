#pragma once

#include "ctran/kernels/protocol/launch_context.cuh"
#include "ctran/kernels/protocol/store_tiles.cuh"
#include "ctran/kernels/protocol/tma_copy.cuh"
#include "ctran/kernels/windows/window_plan.hpp"

// Copies a block's tiles of a transfer to a peer's memory or to this rank's own: by stores of its
// threads (StoreCopier), or by the TMA unit (TmaCopier).
namespace torch::comms::ctran::kernels {

static_assert(kWindowThreads == kStoringThreads);

// Copies tiles by stores of all threads of a block.
class StoreCopier {
 public:
  __device__ StoreCopier(const WindowCollectiveParams& p, const LaunchContext& s) : p_(p), s_(s) {}

  // Copies all tiles of `runs`. For all threads of a block.
  // Returns: false if the launch has to stop.
  __device__ __forceinline__ bool transfer(const TileRuns& runs) { return store(runs, p_, s_); }
  // Completes the copies. Their data is visible to a peer that sees a flag which is stored after
  // this and a fence.
  __device__ __forceinline__ void finish() {}

 private:
  const WindowCollectiveParams& p_;
  const LaunchContext& s_;
};

#if __CUDA_ARCH__ >= 900
// Copies tiles by the TMA unit, which one thread feeds. If source and destination have different
// alignment, all threads store instead.
class TmaCopier {
 public:
  __device__ TmaCopier(const WindowCollectiveParams& p, const LaunchContext& s)
      : p_(p), s_(s), stores_(p, s) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < kTmaStages; ++i) tma::make_barrier(barriers()[i]);
    tma::fence_barrier_init();
    tma::fence_async_proxy();
  }

  __device__ __forceinline__ bool transfer(const TileRuns& runs) {
    for (int r = 0; r < runs.count; ++r)
      if (!runs.run[r].is_equally_aligned()) return stores_.transfer(runs);
    bool stopped = false;
    if (threadIdx.x == 0) stopped = !feed(runs);
    if (threadIdx.x / kWarp == 1)
      for (TileIterator iterator(runs); !iterator.is_over(); iterator.advance()) {
        const size_t at = iterator.run().at(iterator.tile());
        copy_ends(iterator.run().to + at, iterator.run().from + at,
                  ends(iterator.run(), iterator.tile()));
      }
    return __syncthreads_or(stopped) == 0;
  }
  __device__ __forceinline__ void finish() {
    if (threadIdx.x == 0) tma::wait_for_stores(), tma::fence_async_proxy();
  }

 private:
  static constexpr uint64_t kLookEvery = 256;

  __device__ __forceinline__ static uint64_t* barriers() {
    __shared__ uint64_t all[kTmaStages];
    return all;
  }
  __device__ __forceinline__ static char* stage(uint64_t number) {
    extern __shared__ __align__(128) char stages[];
    return stages + number % kTmaStages * kWindowTile;
  }
  __device__ __forceinline__ static UnalignedEnds ends(const TileRun& run, uint64_t i) {
    return ends_of(reinterpret_cast<uint64_t>(run.to + run.at(i)), run.length(i));
  }

  // Whether a tile has whole vectors for the TMA unit. The last tile of a transfer may be too
  // short.
  __device__ __forceinline__ static bool has_middle(const TileIterator& iterator) {
    return ends(iterator.run(), iterator.tile()).middle != 0;
  }
  // `number`: index of the tile among all tiles that this block has loaded.
  __device__ __forceinline__ static void load(const TileIterator& iterator, uint64_t number) {
    const TileRun& run = iterator.run();
    const UnalignedEnds cut = ends(run, iterator.tile());
    tma::load(stage(number), run.from + run.at(iterator.tile()) + cut.head,
              static_cast<uint32_t>(cut.middle), barriers()[number % kTmaStages]);
  }
  __device__ __forceinline__ static void store(const TileIterator& iterator, uint64_t number) {
    const TileRun& run = iterator.run();
    const UnalignedEnds cut = ends(run, iterator.tile());
    tma::store(run.to + run.at(iterator.tile()) + cut.head, stage(number),
               static_cast<uint32_t>(cut.middle));
  }
  __device__ __forceinline__ static void wait(uint64_t number) {
    tma::wait_for_load(barriers()[number % kTmaStages],
                       static_cast<uint32_t>(number / kTmaStages) & 1);
  }

  __device__ __forceinline__ bool feed(const TileRuns& runs) {
    TileIterator loads(runs), stores(runs);
    tma::fence_async_proxy();
    uint64_t loaded = 0, stored = 0;
    const auto load_one = [&] {
      while (!loads.is_over() && !has_middle(loads)) loads.advance();
      if (loads.is_over()) return;
      load(loads, tiles_ + loaded++);
      loads.advance();
    };
    for (int i = 0; i < kTmaLoads; ++i) load_one();
    bool goes_on = true;
    for (; stored < loaded && goes_on; ++stored) {
      wait(tiles_ + stored);
      while (!has_middle(stores)) stores.advance();
      store(stores, tiles_ + stored);
      stores.advance();
      if (!loads.is_over()) {
        // Waits for the earlier store from this stage.
        tma::wait_for_reads<kTmaStages - kTmaLoads>();
        load_one();
      }
      if (stored % kLookEvery == kLookEvery - 1) goes_on = !must_stop(p_, s_, -1);
    }
    for (; stored < loaded; ++stored) wait(tiles_ + stored);  // after a stop: complete the loads
    tiles_ += loaded;
    tma::wait_for_reads<0>();
    return goes_on;
  }

  const WindowCollectiveParams& p_;
  const LaunchContext& s_;
  StoreCopier stores_;
  uint64_t tiles_ = 0;
};
#endif

}  // namespace torch::comms::ctran::kernels
