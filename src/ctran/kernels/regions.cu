#include "ctran/kernels/carriers.cuh"
#include "ctran/kernels/region_meeting.cuh"

// Collectives into memory that all ranks map: every rank pushes what is its to push straight to
// where the others have their outputs, and says so block by block.
namespace torch::comms::ctran::kernels {
namespace {

// Methods are for all threads of a block; what returns false has found that the launch has to stop.
template <class Carrier>
class Pushes {
 public:
  __device__ Pushes(const RegionParams& p, Common& common)
      : p_(p), c_(common), meeting_(p, common), carrier_(p, common.s) {}

  // After begin().
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
#pragma unroll 1
    for (int i = 1; i < p_.size; ++i) {
      const int peer = p_.rank + i < p_.size ? p_.rank + i : p_.rank + i - p_.size;
      if ((p_.push_to >> peer & 1) == 0) continue;
      const Push what = push_of(p_.collective, p_.root, p_.bytes, p_.forwarded, p_.rank, peer);
      const uint64_t tiles = tiles_of_block(what.bytes, p_.blocks, block()),
                     first = round * p_.rounds.tiles, end = first + p_.rounds.tiles;
      if (first >= tiles) continue;
      if (!carrier_.carry({c_.tensors[peer] + what.into,
                           (what.forwards ? p_.output : p_.input) + what.from, what.bytes, block(),
                           p_.blocks, first, end < tiles ? end : tiles}))
        return false;
    }
    return true;
  }
  __device__ __forceinline__ bool copy() {
    const int own = block() - p_.blocks;
    return carrier_.carry({p_.own_to, p_.own, p_.bytes, own, p_.copying_blocks, 0,
                           tiles_of_block(p_.bytes, p_.copying_blocks, own)});
  }

  const RegionParams& p_;
  Common& c_;
  Meeting meeting_;
  Carrier carrier_;
};

template <class Carrier>
__device__ __forceinline__ void push(const RegionParams& p) {
  follow_previous();
  __shared__ Common common;
  uint32_t ticket = 0;
  Pushes<Carrier> pushes(p, common);
  bool done = begin(p, common.s, false, ticket);
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

}  // namespace

RegionKernel find_push(Carrier carrier) {
  if (carrier == Carrier::kBulk)
    return {reinterpret_cast<const void*>(&PushByBulk), kBulkStages * kRegionTile};
  return {reinterpret_cast<const void*>(&PushByStores), 0};
}

}  // namespace torch::comms::ctran::kernels
