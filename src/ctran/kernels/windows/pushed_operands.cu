#include "ctran/kernels/windows/window_reduce.cuh"

// All-reduces that push their operands to the ranks which reduce them, see window_layout.hpp.
namespace torch::comms::ctran::kernels {
namespace {

using Threads = ThreadGroup<kWindowThreads>;
constexpr int kReducers = 0, kPushers = 1;
static_assert(kPushingThreads == 2 * kWindowThreads);

// The work of a block, by two thread groups. Methods are for all threads of a group; they return
// false if the launch has to stop.
template <class F, int N>
class PushedOperands {
 public:
  __device__ PushedOperands(const WindowCollectiveParams& p, const WindowBlockState& common,
                            const WindowSync& window_sync)
      : p_(p), c_(common), window_sync_(window_sync) {}

  __device__ __forceinline__ bool push_all() const {
    const Threads pushers(kPushers);
    Loaded operands;
    load(operands, 0);
#pragma unroll 1
    for (uint64_t step = 0; step < p_.rounds.count; ++step) {
      if (const uint64_t reduced = reduced_before_push(step); reduced != 0)
        if (!window_sync_.wait(p_.pushed_from, reduced, &WindowSyncWords::reduced, pushers))
          return false;
      push(operands, step);
      load(operands, step + 1);  // peers write there only after it has been pushed
      window_sync_.signal(step + 1, &WindowSyncWords::pushed, pushers);
    }
    return true;
  }
  __device__ __forceinline__ bool reduce_all() const {
    const Threads reducers(kReducers);
#pragma unroll 1
    for (uint64_t step = 0; step < p_.rounds.count; ++step) {
      if (!window_sync_.wait(p_.pushed_from, step + 1, &WindowSyncWords::pushed, reducers))
        return false;
      reduce_step(step);
      window_sync_.signal(step + 1, &WindowSyncWords::reduced, reducers);
    }
    return window_sync_.wait(p_.pushed_from, p_.rounds.count, &WindowSyncWords::reduced, reducers);
  }

 private:
  static constexpr int kVectors = static_cast<int>(kWindowTile / 16) / kWindowThreads;
  using Loaded = Vector16[N - 1][kVectors];  // of a step

  // Returns the index of this thread's vector k of a step, in a slot; in_part() in a rank's part.
  __device__ __forceinline__ static size_t in_slot(int k) {
    return static_cast<size_t>(k) * kWindowThreads + static_cast<size_t>(Threads::thread());
  }
  __device__ __forceinline__ size_t in_part(uint64_t step, int k) const {
    return (step * static_cast<uint64_t>(p_.blocks) + blockIdx.x) * (kWindowTile / 16) + in_slot(k);
  }
  __device__ __forceinline__ char* slot(int owner, int source, uint64_t step) const {
    return p_.workspace[owner] + p_.operands +
           operand_offset(owner, source, static_cast<int>(blockIdx.x), step);
  }
  __device__ __forceinline__ static size_t vectors_in(const TensorRange& part) {
    return (part.end - part.begin) / 16;
  }
  __device__ __forceinline__ int next(int i) const { return rank_after(p_.rank, i, p_.size); }

  __device__ __forceinline__ void load(Loaded& v, uint64_t step) const {
#pragma unroll
    for (int i = 1; i < N; ++i) {
      if (i >= p_.size) continue;
      const TensorRange part = part_of(p_.bytes, p_.part, next(i));
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (const size_t at = in_part(step, k); at < vectors_in(part))
          v[i - 1][k] = load_whole(p_.input + part.begin + at * 16, 16);
    }
  }
  __device__ __forceinline__ void push(const Loaded& v, uint64_t step) const {
#pragma unroll
    for (int i = 1; i < N; ++i) {
      if (i >= p_.size) continue;
      const TensorRange part = part_of(p_.bytes, p_.part, next(i));
      char* const to = slot(next(i), p_.rank, step);
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (in_part(step, k) < vectors_in(part)) store_volatile(to + in_slot(k) * 16, v[i - 1][k]);
    }
  }

  // Reduces a step in rank order, and stores the result in all ranks' tensors.
  __device__ __forceinline__ void reduce_step(uint64_t step) const {
    const size_t vectors = vectors_in(p_.reduce_range);
    const char* const own = p_.input + p_.reduce_range.begin;
    Vector16 v[N][kVectors];
#pragma unroll
    for (int r = 0; r < N; ++r) {
      if (r >= p_.size) continue;
      const char* const from = r == p_.rank ? nullptr : slot(p_.rank, r, step);
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (const size_t at = in_part(step, k); at < vectors)
          v[r][k] = load_volatile(from != nullptr ? from + in_slot(k) * 16 : own + at * 16);
    }
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const size_t at = in_part(step, k);
      if (at >= vectors) continue;
      F reducer;
#pragma unroll
      for (int r = 0; r < N; ++r)
        if (r < p_.size) reducer.step(v[r][k], r == 0);
      const Vector16 result = reducer.end(p_.divisor);
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i < p_.size)
          store_volatile(c_.tensors[next(i)] + p_.reduce_range.begin + at * 16, result);
    }
  }

  const WindowCollectiveParams& p_;
  const WindowBlockState& c_;
  const WindowSync& window_sync_;
};

template <class F>
__global__ void __launch_bounds__(kPushingThreads, 1)
    AllReducePushed(const __grid_constant__ WindowCollectiveParams p) {
  constexpr int kRanks = 4;
  follow_previous();
  __shared__ WindowBlockState common;
  uint32_t ticket = 0;
  const WindowSync window_sync(p, common);
  const auto run = [&] {
    if (threadIdx.x == 0) common.tensors[p.rank] = const_cast<char*>(p.input);
    window_sync.publish_location(true);
    if (!window_sync.wait_for_locations(true)) return false;
    const WindowOperands operands(p, common);
    if (!reduce_rest<F>(p, common.s, operands)) return false;
    if (operands.are_aligned()) {
      const PushedOperands<F, kRanks> pushed(p, common, window_sync);
      return Threads::number_of_this() == kPushers ? pushed.push_all() : pushed.reduce_all();
    }
    window_sync.signal(1);
    return window_sync.wait(p.pushed_from, 1);
  };
  bool done = begin(p, common.s, load_header(p), false, ticket);
  if (done) done = run();
  end(p, common.s, done, ticket);
}

struct FindPushed {
  template <class F>
  const void* operator()() const {
    if constexpr (F::kHot)
      return reinterpret_cast<const void*>(&AllReducePushed<F>);
    else
      return nullptr;
  }
};

}  // namespace

const void* find_pushed_reduction(ReducerId id) {
  return visit_floats<const void*>(id, FindPushed{});
}

}  // namespace torch::comms::ctran::kernels
