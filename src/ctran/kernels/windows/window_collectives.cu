#include "ctran/kernels/protocol/copy_methods.cuh"
#include "ctran/kernels/windows/window_copies.hpp"
#include "ctran/kernels/windows/window_sync.cuh"

// Window collectives that only move data: every rank pushes its data directly to the outputs of its
// peers, and signals them block by block.
namespace torch::comms::ctran::kernels {
namespace {

// Methods are for all threads of a block; they return false if the launch has to stop.
template <class Copier>
class Pushes {
 public:
  __device__ Pushes(const WindowCollectiveParams& p, WindowBlockState& common, TileRuns& runs)
      : p_(p), c_(common), runs_(runs), window_sync_(p, common), copier_(p, common.s) {}

  // Call it after begin().
  __device__ __forceinline__ bool run() {
    const bool done = block() < p_.blocks ? exchange() : copy();
    copier_.finish();
    return done;
  }

 private:
  __device__ __forceinline__ static int block() { return static_cast<int>(blockIdx.x); }

  __device__ __forceinline__ bool exchange() {
    window_sync_.publish_location(false);
    if (!window_sync_.wait_for_locations(false)) return false;
    const bool forwards = p_.collective == Collective::kBroadcast && p_.rank != p_.root;
#pragma unroll 1
    for (uint64_t round = 0; round < p_.rounds.count; ++round) {
      if (forwards && !window_sync_.wait(1u << p_.root, round + 1)) return false;
      if (!push(round)) return false;
      if (!forwards || round + 1 == p_.rounds.count) signal(round + 1);
    }
    return window_sync_.wait(p_.pushed_from, p_.rounds.count);
  }
  __device__ __forceinline__ void signal(uint64_t rounds) {
    copier_.finish();
    window_sync_.signal(rounds);
  }

  // Pushes this block's tiles of a round to each peer.
  __device__ __forceinline__ bool push(uint64_t round) {
    if (threadIdx.x < kWarp) {
      const int i = static_cast<int>(threadIdx.x) + 1;
      const int peer = rank_after(p_.rank, i, p_.size);
      const bool pushes = i < p_.size && (p_.push_to >> peer & 1) != 0;
      const PushedRange what =
          pushes ? push_of(p_.collective, p_.root, p_.bytes, p_.forwarded, p_.rank, peer)
                 : PushedRange{};
      const uint64_t tiles = tiles_of_block(what.bytes, p_.blocks, block()),
                     first = round * p_.rounds.tiles, end = first + p_.rounds.tiles;
      const uint32_t lanes = __ballot_sync(~0u, first < tiles);
      if (threadIdx.x == 0) runs_.count = __popc(lanes);
      if (first < tiles)
        runs_.run[__popc(lanes & ((1u << threadIdx.x) - 1))] = {
            c_.tensors[peer] + what.into,
            (what.is_forwarded ? p_.output : p_.input) + what.from,
            what.bytes,
            block(),
            p_.blocks,
            first,
            end < tiles ? end : tiles};
    }
    __syncthreads();
    return copier_.transfer(runs_);
  }
  __device__ __forceinline__ bool copy() {
    if (threadIdx.x == 0) {
      const int own = block() - p_.blocks;
      runs_.run[0] = {p_.own_to,
                      p_.own,
                      p_.bytes,
                      own,
                      p_.local_copy_blocks,
                      0,
                      tiles_of_block(p_.bytes, p_.local_copy_blocks, own)};
      runs_.count = 1;
    }
    __syncthreads();
    return copier_.transfer(runs_);
  }

  const WindowCollectiveParams& p_;
  WindowBlockState& c_;
  TileRuns& runs_;  // shared by the threads of a block
  WindowSync window_sync_;
  Copier copier_;
};

template <class Copier>
__device__ __forceinline__ void push(const WindowCollectiveParams& p) {
  follow_previous();
  __shared__ WindowBlockState common;
  __shared__ TileRuns runs;
  uint32_t ticket = 0;
  Pushes<Copier> pushes(p, common, runs);
  bool done = begin(p, common.s, load_header(p), false, ticket);
  if (done) done = pushes.run();
  end(p, common.s, done, ticket);
}

__global__ void __launch_bounds__(kWindowThreads, 1)
    PushByStores(const __grid_constant__ WindowCollectiveParams p) {
  push<StoreCopier>(p);
}
__global__ void __launch_bounds__(kWindowThreads, 1)
    PushByTma(const __grid_constant__ WindowCollectiveParams p) {
#if __CUDA_ARCH__ >= 900
  push<TmaCopier>(p);
#else
  push<StoreCopier>(p);
#endif
}

__global__ void __launch_bounds__(kWindowThreads, 1)
    CopyOwnPart(const __grid_constant__ DeviceCopy copy) {
  follow_previous();
  const auto block = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const TileRun run{
      copy.to, copy.from, copy.bytes, block, blocks, 0, tiles_of_block(copy.bytes, blocks, block)};
  for (uint64_t i = 0; i < run.end; i += kStoredTiles) store_tiles(run, i);
}

}  // namespace

const void* find_local_copy() { return reinterpret_cast<const void*>(&CopyOwnPart); }

WindowCollectiveKernel find_push(CopyMethod copy_method) {
  if (copy_method == CopyMethod::kTma)
    return {reinterpret_cast<const void*>(&PushByTma), kTmaStages * kWindowTile};
  return {reinterpret_cast<const void*>(&PushByStores), 0};
}

}  // namespace torch::comms::ctran::kernels
