#include "ctran/kernels/carriers.cuh"

// Collectives into memory that all ranks map: every rank tells where its output is, pushes what is
// its to push straight there, and says so block by block.
namespace torch::comms::ctran::kernels {
namespace {

__device__ __forceinline__ RegionWords& words_of(const RegionParams& p, int rank) {
  return *reinterpret_cast<RegionWords*>(p.workspace[rank] + p.words);
}

// What the threads of a block share.
struct Common {
  Session s;
  char* outputs[kMaxRanks];  // of those that this rank pushes to
};

// Methods are for all threads of a block; what returns false has found that the launch has to stop.
template <class Carrier>
class Pushes {
 public:
  __device__ Pushes(const RegionParams& p, Common& common)
      : p_(p), c_(common), carrier_(p, common.s) {}

  // After begin().
  __device__ __forceinline__ bool run() {
    const bool done = block() < p_.blocks ? exchange() : copy();
    carrier_.finish();
    return done;
  }

 private:
  __device__ __forceinline__ static int block() { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ __forceinline__ static bool is_first_warp() { return threadIdx.x < kWarp; }
  // Whether this lane's number is one of the ranks.
  __device__ __forceinline__ static bool is_one_of(uint32_t ranks) {
    return (ranks >> lane() & 1) != 0;
  }

  __device__ __forceinline__ bool exchange() {
    if (blockIdx.x == 0 && is_first_warp()) tell_place();
    if (!find_outputs()) return false;
    const bool forwards = p_.collective == Collective::kBroadcast && p_.rank != p_.root;
#pragma unroll 1
    for (uint64_t round = 0; round < p_.rounds.count; ++round) {
      if (forwards && !hear(1u << p_.root, round + 1)) return false;
      if (!push(round)) return false;
      if (!forwards || round + 1 == p_.rounds.count) tell(round + 1);
    }
    return hear(p_.pushed_from, p_.rounds.count);
  }

  // To all: what was done with the output before, this rank's stream had done before the launch.
  __device__ __forceinline__ void tell_place() const {
    if (lane() >= p_.size || lane() == p_.rank) return;
    auto& words = words_of(p_, lane()).places[c_.s.launch & 1][p_.rank].words;
#pragma unroll
    for (int i = 0; i < kPlaceWords; ++i)
      store_relaxed(&words[i], place_word(p_.place, c_.s.launch, print_in(c_.s.begun), i));
  }

  // Waits for the places of all that this rank pushes to. What is pushed goes to addresses that are
  // read here, so not before.
  __device__ __forceinline__ bool find_outputs() const {
    const bool found = !is_first_warp() || find_by_lanes();
    return __syncthreads_and(found) != 0;
  }
  __device__ __forceinline__ bool find_by_lanes() const {
    const uint64_t launch = c_.s.launch;
    uint64_t words[kPlaceWords] = {};
    bool is_missing = is_one_of(p_.push_to);
    for (Patience patience;;) {
      if (is_missing) {
        const auto& from = words_of(p_, p_.rank).places[launch & 1][lane()].words;
        is_missing = false;
#pragma unroll
        for (int i = 0; i < kPlaceWords; ++i) {
          words[i] = load_relaxed(&from[i]);
          is_missing |= !is_of_launch(words[i], launch);
        }
      }
      const uint32_t missing = __ballot_sync(~0u, is_missing);
      if (missing == 0) break;
      if (patience.is_over(p_, c_.s, __ffs(static_cast<int>(missing)) - 1)) return false;
    }
    const bool is_other = is_one_of(p_.push_to) && !is_of_call(words, launch, print_in(c_.s.begun));
    if (const uint32_t others = __ballot_sync(~0u, is_other)) {
      if (lane() == 0) stop_all(p_, c_.s, __ffs(static_cast<int>(others)) - 1);
      return false;
    }
    const bool is_wrong = is_one_of(p_.push_to) && !agrees(words, p_.place, p_.is_one_place);
    if (is_one_of(p_.push_to)) c_.outputs[lane()] = p_.memory[lane()] + offset_in(words);
    if (const uint32_t wrong = __ballot_sync(~0u, is_wrong)) {
      const int peer = __ffs(static_cast<int>(wrong)) - 1;
      if (lane() == 0) {
        stop(p_, c_.s, kOtherRegion, peer);
        report(p_, kOtherRegion, peer);
      }
      return false;
    }
    return true;
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
      if (!carrier_.carry({c_.outputs[peer] + what.into,
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

  // What this block has pushed is there.
  __device__ __forceinline__ void tell(uint64_t rounds) {
    carrier_.finish();
    __syncthreads();
    if (!is_first_warp() || !is_one_of(p_.push_to)) return;
    fence_release();
    store_relaxed(&words_of(p_, lane()).pushed[block()][p_.rank], tag_of(c_.s.launch, rounds));
  }
  // Waits until the same block of each of those ranks has told so many rounds.
  __device__ __forceinline__ bool hear(uint32_t ranks, uint64_t rounds) const {
    bool heard = true;
    if (is_first_warp()) {
      const uint64_t wanted = tag_of(c_.s.launch, rounds);
      bool is_missing = is_one_of(ranks);
      for (Patience patience;;) {
        if (is_missing)
          is_missing =
              !has_come(load_acquire(&words_of(p_, p_.rank).pushed[block()][lane()]), wanted);
        const uint32_t missing = __ballot_sync(~0u, is_missing);
        if (missing == 0) break;
        heard = !patience.is_over(p_, c_.s, __ffs(static_cast<int>(missing)) - 1);
        if (!heard) break;
      }
    }
    return __syncthreads_and(heard) != 0;
  }

  const RegionParams& p_;
  Common& c_;
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

const void* find_push(Carrier carrier) {
  return carrier == Carrier::kBulk ? reinterpret_cast<const void*>(&PushByBulk)
                                   : reinterpret_cast<const void*>(&PushByStores);
}

}  // namespace torch::comms::ctran::kernels
