#pragma once

#include "ctran/kernels/protocol/bytes.cuh"
#include "ctran/kernels/protocol/launch_context.cuh"
#include "ctran/kernels/windows/window_layout.hpp"

// Copies a block's tiles of a transfer by stores of its threads, to a peer's memory or to this
// rank's own.
namespace torch::comms::ctran::kernels {

inline constexpr int kStoringThreads = 512;

// A run of tiles of one block. Tile i of the run is tile `block + i * blocks` of the transfer.
struct TileRun {
  char* to;
  const char* from;
  size_t bytes;  // of the whole transfer
  int block, blocks;
  uint64_t first, end;

  __device__ __forceinline__ bool is_equally_aligned() const {
    return ((reinterpret_cast<uint64_t>(to) ^ reinterpret_cast<uint64_t>(from)) & 15) == 0;
  }
  __device__ __forceinline__ size_t at(uint64_t i) const {
    return (static_cast<uint64_t>(block) + i * static_cast<uint64_t>(blocks)) * kWindowTile;
  }
  __device__ __forceinline__ uint32_t length(uint64_t i) const {
    const size_t left = bytes - at(i);
    return left < kWindowTile ? static_cast<uint32_t>(left) : static_cast<uint32_t>(kWindowTile);
  }
};

// Runs of one block that are copied in turn: the first tile of each run, then the second ones. With
// one run after another, 4 GPUs that push to each other reached 250 GB/s instead of 330.
struct TileRuns {
  TileRun run[kMaxRanks];
  int count;
};
// Iterates over the tiles of all runs, one tile of each run in turn.
class TileIterator {
 public:
  __device__ __forceinline__ TileIterator(const TileRuns& runs) : runs_(runs) {
    for (int r = 0; r < runs.count; ++r)
      if (const TileRun& run = runs.run[r]; run.end > run.first + most_)
        most_ = run.end - run.first;
    if (runs.count != 0) skip_finished();
  }
  __device__ __forceinline__ bool is_over() const { return runs_.count == 0 || number_ >= most_; }
  __device__ __forceinline__ const TileRun& run() const { return runs_.run[r_]; }
  __device__ __forceinline__ uint64_t tile() const { return run().first + number_; }
  __device__ __forceinline__ void advance() {
    step();
    skip_finished();
  }

 private:
  __device__ __forceinline__ void step() {
    if (++r_ < runs_.count) return;
    r_ = 0;
    ++number_;
  }
  __device__ __forceinline__ void skip_finished() {
    while (number_ < most_ && tile() >= run().end) step();
  }

  const TileRuns& runs_;
  uint64_t number_ = 0, most_ = 0;
  int r_ = 0;
};

// Copies the bytes of a tile that are in no vector. For threads 0 to 15 of a warp.
__device__ __forceinline__ void copy_ends(char* to, const char* from, const UnalignedEnds& ends) {
  const auto thread = threadIdx.x % kWarp;
  const auto byte = [&](size_t at) { to[at] = *const_cast<const volatile char*>(from + at); };
  if (thread < ends.head) byte(thread);
  if (thread < ends.tail) byte(ends.head + ends.middle + thread);
}

// Tiles of a block that are in flight at once.
inline constexpr int kStoredTiles = 2;

// Loads a vector, never from a cache line that is older than a peer's write.
__device__ __forceinline__ Vector16 load_anywhere(const char* from, uint32_t off) {
  if (off == 0) return load_volatile(from);
  return shifted(load_volatile(from - off), load_volatile(from - off + 16), off);
}
// Copies kStoredTiles tiles of a run from index `first` on. For threads 0 to kStoringThreads - 1.
__device__ __forceinline__ void store_tiles(const TileRun& run, uint64_t first) {
  constexpr int kTiles = kStoredTiles,
                kVectors = static_cast<int>(kWindowTile / 16) / kStoringThreads;
  const auto index = [](int k) { return static_cast<uint32_t>(k) * kStoringThreads + threadIdx.x; };
  Vector16 v[kTiles][kVectors];
  UnalignedEnds ends[kTiles];
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    ends[t] = {};
    if (first + t >= run.end) continue;
    const size_t at = run.at(first + t);
    ends[t] = ends_of(reinterpret_cast<uint64_t>(run.to + at), run.length(first + t));
    const char* const from = run.from + at + ends[t].head;
    const uint32_t off = misaligned(from);
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (index(k) * 16 < ends[t].middle) v[t][k] = load_anywhere(from + index(k) * 16, off);
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    if (first + t >= run.end) continue;
    char* const to = run.to + run.at(first + t);
#pragma unroll
    for (int k = 0; k < kVectors; ++k)
      if (index(k) * 16 < ends[t].middle)
        *reinterpret_cast<Vector16*>(to + ends[t].head + index(k) * 16) = v[t][k];
    if (threadIdx.x < kWarp) copy_ends(to, run.from + run.at(first + t), ends[t]);
  }
}

// Copies all tiles of `runs`. For all threads of a block. The data is visible to a peer that sees a
// flag which is stored after this and a fence.
// Returns: false if the launch has to stop.
__device__ __forceinline__ bool store(const TileRuns& runs, const TeamView& p,
                                      const LaunchContext& s) {
  constexpr uint64_t kLookEvery = 128;
  uint64_t looked = 0;
  for (uint64_t i = 0;; i += kStoredTiles) {
    bool is_any = false;
#pragma unroll 1
    for (int r = 0; r < runs.count; ++r) {
      const TileRun& run = runs.run[r];
      if (run.first + i >= run.end) continue;
      is_any = true;
      if (++looked % kLookEvery == 0 && block_must_stop(p, s)) return false;
      store_tiles(run, run.first + i);
    }
    if (!is_any) return true;
  }
}

}  // namespace torch::comms::ctran::kernels
