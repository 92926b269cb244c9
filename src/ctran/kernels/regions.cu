#include "ctran/kernels/carriers.cuh"
#include "ctran/kernels/region_copies.hpp"
#include "ctran/kernels/region_meeting.cuh"

// Collectives into memory that all ranks map: every rank pushes what is its to push straight to
// where the others have their outputs, and says so block by block.
namespace torch::comms::ctran::kernels {
namespace {

// Methods are for all threads of a block; what returns false has found that the launch has to stop.
template <class Carrier>
class Pushes {
 public:
  __device__ Pushes(const RegionParams& p, Common& common, Runs& runs)
      : p_(p), c_(common), runs_(runs), meeting_(p, common), carrier_(p, common.s) {}

  // After start_query().
  __device__ __forceinline__ bool run() {
    const bool done = block() < p_.blocks ? exchange() : copy();
    carrier_.finish();
    return done;
  }

 private:
  __device__ __forceinline__ static int block() { return static_cast<int>(blockIdx.x); }

  __device__ __forceinline__ bool exchange() {
    meeting_.tell_place(false);
    if (!meeting_.find_places(false)) return false;
    const bool forwards = p_.collective == Collective::kBroadcast && p_.rank != p_.root;
#pragma unroll 1
    for (uint64_t round = 0; round < p_.rounds.count; ++round) {
      if (forwards && !meeting_.hear(1u << p_.root, round + 1)) return false;
      if (!push(round)) return false;
      if (!forwards || round + 1 == p_.rounds.count) tell(round + 1);
    }
    return meeting_.hear(p_.pushed_from, p_.rounds.count);
  }
  __device__ __forceinline__ void tell(uint64_t rounds) {
    carrier_.finish();
    meeting_.tell(rounds);
  }

  // Its tiles of a round, to each peer.
  __device__ __forceinline__ bool push(uint64_t round) {
    if (threadIdx.x < kWarp) {
      const int i = static_cast<int>(threadIdx.x) + 1;
      const int peer = rank_after(p_.rank, i, p_.size);
      const bool pushes = i < p_.size && (p_.push_to >> peer & 1) != 0;
      const Push what =
          pushes ? push_of(p_.collective, p_.root, p_.bytes, p_.forwarded, p_.rank, peer) : Push{};
      const uint64_t tiles = tiles_of_block(what.bytes, p_.blocks, block()),
                     first = round * p_.rounds.tiles, end = first + p_.rounds.tiles;
      const uint32_t lanes = __ballot_sync(~0u, first < tiles);
      if (threadIdx.x == 0) runs_.count = __popc(lanes);
      if (first < tiles)
        runs_.run[__popc(lanes & ((1u << threadIdx.x) - 1))] = {
            c_.tensors[peer] + what.into,
            (what.forwards ? p_.output : p_.input) + what.from,
            what.bytes,
            block(),
            p_.blocks,
            first,
            end < tiles ? end : tiles};
    }
    __syncthreads();
    return carrier_.carry(runs_);
  }
  __device__ __forceinline__ bool copy() {
    if (threadIdx.x == 0) {
      const int own = block() - p_.blocks;
      runs_.run[0] = {p_.own_to,
                      p_.own,
                      p_.bytes,
                      own,
                      p_.copying_blocks,
                      0,
                      tiles_of_block(p_.bytes, p_.copying_blocks, own)};
      runs_.count = 1;
    }
    __syncthreads();
    return carrier_.carry(runs_);
  }

  const RegionParams& p_;
  Common& c_;
  Runs& runs_;  // shared by the threads of a block
  Meeting meeting_;
  Carrier carrier_;
};

template <class Carrier>
__device__ __forceinline__ void push(const RegionParams& p) {
  follow_previous();
  __shared__ Common common;
  __shared__ Runs runs;
  uint32_t ticket = 0;
  Pushes<Carrier> pushes(p, common, runs);
  bool done = begin(p, common.s, look_at_header(p), false, ticket);
  if (done) done = pushes.run();
  end(p, common.s, done, ticket);
}

__global__ void __launch_bounds__(kRegionThreads, 1)
    PushByStores(const __grid_constant__ RegionParams p) {
  push<Stores>(p);
}
__global__ void __launch_bounds__(kRegionThreads, 1)
    PushByBulk(const __grid_constant__ RegionParams p) {
#if __CUDA_ARCH__ >= 900
  push<Bulk>(p);
#else
  push<Stores>(p);
#endif
}

__global__ void __launch_bounds__(kRegionThreads, 1) CopyOwn(const __grid_constant__ Copy copy) {
  follow_previous();
  const auto block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const Run run{
      copy.to, copy.from, copy.bytes, block, blocks, 0, tiles_of_block(copy.bytes, blocks, block)};
  for (uint64_t i = 0; i < run.end; i += kStoredTiles) store_tiles(run, i);
}

}  // namespace

const void* find_own_copy() { return reinterpret_cast<const void*>(&CopyOwn); }

RegionKernel find_push(Carrier carrier) {
  if (carrier == Carrier::kBulk)
    return {reinterpret_cast<const void*>(&PushByBulk), kBulkStages * kRegionTile};
  return {reinterpret_cast<const void*>(&PushByStores), 0};
}

}  // namespace torch::comms::ctran::kernels
