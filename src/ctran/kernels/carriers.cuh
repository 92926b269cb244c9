#pragma once

#include "ctran/kernels/bulk.cuh"
#include "ctran/kernels/region_plan.hpp"
#include "ctran/kernels/session.cuh"
#include "ctran/kernels/stores.cuh"

// How a block's tiles of a transfer get to a peer's memory, or to this rank's own.
namespace torch::comms::ctran::kernels {

static_assert(kRegionThreads == kStoringThreads);

class Stores {
 public:
  __device__ Stores(const RegionParams& p, const Session& s) : p_(p), s_(s) {}

  // For all threads of a block. False if the launch has to stop.
  __device__ __forceinline__ bool carry(const Runs& runs) { return store(runs, p_, s_); }
  // What was carried has arrived once another block of threads sees what is told after this and a
  // fence.
  __device__ __forceinline__ void finish() {}

 private:
  const RegionParams& p_;
  const Session& s_;
};

#if __CUDA_ARCH__ >= 900
// One thread feeds the copy unit; where source and destination are not aligned alike, all threads
// store.
class Bulk {
 public:
  __device__ Bulk(const RegionParams& p, const Session& s) : p_(p), s_(s), stores_(p, s) {
    if (threadIdx.x != 0) return;
    for (int i = 0; i < kBulkStages; ++i) bulk::make_barrier(barriers()[i]);
    bulk::barriers_are_made();
    bulk::fence_unit();
  }

  __device__ __forceinline__ bool carry(const Runs& runs) {
    for (int r = 0; r < runs.count; ++r)
      if (!runs.run[r].is_alike()) return stores_.carry(runs);
    bool stopped = false;
    if (threadIdx.x == 0) stopped = !feed(runs);
    if (threadIdx.x / kWarp == 1)
      for (Turn turn(runs); !turn.is_over(); turn.go_on()) {
        const size_t at = turn.run().at(turn.tile());
        carry_ends(turn.run().to + at, turn.run().from + at, ends(turn.run(), turn.tile()));
      }
    return __syncthreads_or(stopped) == 0;
  }
  __device__ __forceinline__ void finish() {
    if (threadIdx.x == 0) bulk::wait_for_stores(), bulk::fence_unit();
  }

 private:
  static constexpr uint64_t kLookEvery = 256;

  __device__ __forceinline__ static uint64_t* barriers() {
    __shared__ uint64_t all[kBulkStages];
    return all;
  }
  __device__ __forceinline__ static char* stage(uint64_t number) {
    extern __shared__ __align__(128) char stages[];
    return stages + number % kBulkStages * kRegionTile;
  }
  __device__ __forceinline__ static Ends ends(const Run& run, uint64_t i) {
    return ends_of(reinterpret_cast<uint64_t>(run.to + run.at(i)), run.length(i));
  }

  // What the copy unit has of a tile. The last one of a transfer may be too short for a vector.
  __device__ __forceinline__ static bool has_middle(const Turn& turn) {
    return ends(turn.run(), turn.tile()).middle != 0;
  }
  // `number`: of the tile, among all that this block has loaded.
  __device__ __forceinline__ static void load(const Turn& turn, uint64_t number) {
    const Run& run = turn.run();
    const Ends cut = ends(run, turn.tile());
    bulk::load(stage(number), run.from + run.at(turn.tile()) + cut.head,
               static_cast<uint32_t>(cut.middle), barriers()[number % kBulkStages]);
  }
  __device__ __forceinline__ static void store(const Turn& turn, uint64_t number) {
    const Run& run = turn.run();
    const Ends cut = ends(run, turn.tile());
    bulk::store(run.to + run.at(turn.tile()) + cut.head, stage(number),
                static_cast<uint32_t>(cut.middle));
  }
  __device__ __forceinline__ static void wait(uint64_t number) {
    bulk::wait_for_load(barriers()[number % kBulkStages],
                        static_cast<uint32_t>(number / kBulkStages) & 1);
  }

  __device__ __forceinline__ bool feed(const Runs& runs) {
    Turn loads(runs), stores(runs);
    bulk::fence_unit();
    uint64_t loaded = 0, stored = 0;
    const auto load_one = [&] {
      while (!loads.is_over() && !has_middle(loads)) loads.go_on();
      if (loads.is_over()) return;
      load(loads, tiles_ + loaded++);
      loads.go_on();
    };
    for (int i = 0; i < kBulkLoads; ++i) load_one();
    bool goes_on = true;
    for (; stored < loaded && goes_on; ++stored) {
      wait(tiles_ + stored);
      while (!has_middle(stores)) stores.go_on();
      store(stores, tiles_ + stored);
      stores.go_on();
      if (!loads.is_over()) {
        // The stage's store before.
        bulk::wait_for_reads<kBulkStages - kBulkLoads>();
        load_one();
      }
      if (stored % kLookEvery == kLookEvery - 1) goes_on = !must_stop(p_, s_, -1);
    }
    for (; stored < loaded; ++stored) wait(tiles_ + stored);  // after a stop
    tiles_ += loaded;
    bulk::wait_for_reads<0>();
    return goes_on;
  }

  const RegionParams& p_;
  const Session& s_;
  Stores stores_;
  uint64_t tiles_ = 0;
};
#endif

}  // namespace torch::comms::ctran::kernels
