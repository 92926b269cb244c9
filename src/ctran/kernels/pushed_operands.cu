#include "ctran/kernels/region_reduce.cuh"

// All-reduces whose operands are pushed to who reduces them, as region_layout.hpp has it.
namespace torch::comms::ctran::kernels {
namespace {

// Methods are for all threads of a block; what returns false has found that the launch has to stop.
template <class F, int N>
class PushedOperands {
 public:
  __device__ PushedOperands(const RegionParams& p, const Common& common, const Meeting& meeting)
      : p_(p), c_(common), meeting_(meeting) {}

  __device__ __forceinline__ bool reduce() const {
    const uint64_t steps = p_.rounds.count;
    push(0);
#pragma unroll 1
    for (uint64_t step = 0; step < steps; ++step) {
      if (step + 1 < steps) {
        if (step > 0 && !hear(told_made(step - 1, steps))) return false;
        push(step + 1);
      }
      if (!hear(told_pushed(step))) return false;
      make(step);
      meeting_.tell(told_made(step, steps));
    }
    return hear(told_made(steps - 1, steps));
  }

 private:
  static constexpr int kVectors = static_cast<int>(kRegionTile / 16) / kRegionThreads;

  __device__ __forceinline__ bool hear(uint64_t rounds) const {
    return meeting_.hear(p_.pushed_from, rounds);
  }
  // This thread's vector k of a step: in a slot, and in a rank's part.
  __device__ __forceinline__ static size_t in_slot(int k) {
    return static_cast<size_t>(k) * kRegionThreads + threadIdx.x;
  }
  __device__ __forceinline__ size_t in_part(uint64_t step, int k) const {
    return (step * static_cast<uint64_t>(p_.blocks) + blockIdx.x) * (kRegionTile / 16) + in_slot(k);
  }
  __device__ __forceinline__ char* slot(int owner, int source, uint64_t step) const {
    return p_.workspace[owner] + p_.operands +
           operand_offset(owner, source, static_cast<int>(blockIdx.x), step);
  }
  __device__ __forceinline__ static size_t vectors_in(const Range& part) {
    return (part.end - part.begin) / 16;
  }
  __device__ __forceinline__ int next(int i) const { return rank_after(p_.rank, i, p_.size); }

  __device__ __forceinline__ void push(uint64_t step) const {
    Vector16 v[N - 1][kVectors];
#pragma unroll
    for (int i = 1; i < N; ++i) {
      if (i >= p_.size) continue;
      const Range part = part_of(p_.bytes, p_.part, next(i));
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (const size_t at = in_part(step, k); at < vectors_in(part))
          v[i - 1][k] = load_whole(p_.input + part.begin + at * 16, 16);
    }
#pragma unroll
    for (int i = 1; i < N; ++i) {
      if (i >= p_.size) continue;
      const Range part = part_of(p_.bytes, p_.part, next(i));
      char* const to = slot(next(i), p_.rank, step);
#pragma unroll
      for (int k = 0; k < kVectors; ++k)
        if (in_part(step, k) < vectors_in(part)) store_volatile(to + in_slot(k) * 16, v[i - 1][k]);
    }
    meeting_.tell(told_pushed(step));
  }

  // In the order of ranks.
  __device__ __forceinline__ void make(uint64_t step) const {
    const size_t vectors = vectors_in(p_.made);
    const char* const own = p_.input + p_.made.begin;
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
      const Vector16 made = reducer.end(p_.divisor);
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i < p_.size) store_volatile(c_.tensors[next(i)] + p_.made.begin + at * 16, made);
    }
  }

  const RegionParams& p_;
  const Common& c_;
  const Meeting& meeting_;
};

template <class F>
__global__ void __launch_bounds__(kRegionThreads, 1)
    AllReducePushed(const __grid_constant__ RegionParams p) {
  constexpr int kRanks = 4;
  follow_previous();
  __shared__ Common common;
  uint32_t ticket = 0;
  const Meeting meeting(p, common);
  const auto run = [&] {
    if (threadIdx.x == 0) common.tensors[p.rank] = const_cast<char*>(p.input);
    meeting.tell_place(true);
    if (!meeting.find_places(true)) return false;
    const Operands operands(p, common);
    if (!reduce_rest<F>(p, common.s, operands)) return false;
    if (operands.are_aligned()) return PushedOperands<F, kRanks>(p, common, meeting).reduce();
    meeting.tell(1);
    return meeting.hear(p.pushed_from, 1);
  };
  bool done = begin(p, common.s, look_at_header(p), false, ticket);
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

const void* find_pushed_reduction(Cell cell) {
  return visit_floats<const void*>(cell, FindPushed{});
}

}  // namespace torch::comms::ctran::kernels
