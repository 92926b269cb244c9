#pragma once

#include "ctran/kernels/protocol/launch_context.cuh"
#include "ctran/kernels/windows/window_plan.hpp"

// How the ranks of a window collective synchronize: every rank publishes where its tensor is, and
// peers signal, block by block, what they have done.
namespace torch::comms::ctran::kernels {

__device__ __forceinline__ WindowSyncWords& words_of(const WindowCollectiveParams& p, int rank) {
  return *reinterpret_cast<WindowSyncWords*>(p.workspace[rank] + p.words);
}

// State that the threads of a block share.
struct WindowBlockState {
  LaunchContext s;
  char* tensors[kMaxRanks];  // tensors in the window, of the ranks whose locations have arrived
};

// Threads that synchronize with each other: all of a block, or one of several groups in it.
struct WholeBlock {
  __device__ __forceinline__ void sync() const { __syncthreads(); }
  __device__ __forceinline__ bool all(bool each) const { return __syncthreads_and(each) != 0; }
  __device__ __forceinline__ bool has_first_warp() const { return threadIdx.x < kWarp; }
};
template <int kThreads>
class ThreadGroup {
 public:
  __device__ explicit ThreadGroup(int number) : number_(number) {}
  __device__ __forceinline__ static int number_of_this() {
    return static_cast<int>(threadIdx.x) / kThreads;
  }
  __device__ __forceinline__ static int thread() {
    return static_cast<int>(threadIdx.x) % kThreads;
  }
  __device__ __forceinline__ void sync() const {
    asm volatile("bar.sync %0, %1;" ::"r"(barrier()), "n"(kThreads) : "memory");
  }
  __device__ __forceinline__ bool all(bool each) const {
    uint32_t result;
    asm volatile(
        "{\n.reg .pred each, all;\nsetp.ne.u32 each, %1, 0;\n"
        "bar.red.and.pred all, %2, %3, each;\nselp.u32 %0, 1, 0, all;\n}"
        : "=r"(result)
        : "r"(static_cast<uint32_t>(each)), "r"(barrier()), "n"(kThreads)
        : "memory");
    return result != 0;
  }
  __device__ __forceinline__ bool has_first_warp() const { return thread() < kWarp; }

 private:
  __device__ __forceinline__ int barrier() const { return number_ + 1; }  // 0 is the block's
  const int number_;
};

// Exchanges locations and signals with the peers. Methods are for all threads of a block unless
// they say otherwise; they return false if the launch has to stop.
class WindowSync {
 public:
  __device__ WindowSync(const WindowCollectiveParams& p, WindowBlockState& common)
      : p_(p), c_(common) {}

  // Publishes this rank's location to all peers, by the first warp of block 0. The launch runs
  // after all earlier work on the tensor in this rank's stream. `fences`: peers read the tensor.
  __device__ __forceinline__ void publish_location(bool fences) const {
    if (blockIdx.x != 0 || !is_first_warp() || lane() >= p_.size || lane() == p_.rank) return;
    if (fences) fence_release();
    auto& words = words_of(p_, lane()).locations[c_.s.launch & 1][p_.rank].words;
#pragma unroll
    for (int i = 0; i < kLocationWords; ++i)
      store_relaxed(&words[i],
                    location_word(p_.location, c_.s.launch, fingerprint_in(c_.s.arrival), i));
  }

  // Waits for the locations of all ranks of push_to. Pushes go to addresses that are read here, so
  // no push can begin earlier. `fences`: this rank reads their tensors, with all their earlier
  // writes.
  __device__ __forceinline__ bool wait_for_locations(bool fences) const {
    const bool found = !is_first_warp() || find_by_lanes();
    if (fences && is_first_warp()) fence_release();
    return __syncthreads_and(found) != 0;
  }
  // Signals to push_to that this block, or these threads of it, have completed `rounds` rounds.
  // What they have written is visible to a peer that sees the signal. `counter`: which counter is
  // signaled.
  template <class Threads = WholeBlock>
  __device__ __forceinline__ void signal(uint64_t rounds,
                                         WindowSyncWords::BlockCounters counter = kPushed,
                                         const Threads& threads = {}) const {
    threads.sync();
    if (!threads.has_first_warp() || !is_one_of(p_.push_to)) return;
    fence_release();
    store_relaxed(&(words_of(p_, lane()).*counter)[block()][p_.rank], tag_of(c_.s.launch, rounds));
  }
  // Waits until the same block of each of `ranks` has signaled `rounds` rounds.
  template <class Threads = WholeBlock>
  __device__ __forceinline__ bool wait(uint32_t ranks, uint64_t rounds,
                                       WindowSyncWords::BlockCounters counter = kPushed,
                                       const Threads& threads = {}) const {
    bool signaled = true;
    if (threads.has_first_warp()) {
      const uint64_t wanted = tag_of(c_.s.launch, rounds);
      bool is_missing = is_one_of(ranks);
      for (StopChecker stop_checker;;) {
        if (is_missing)
          is_missing = !has_reached(
              load_acquire(&(words_of(p_, p_.rank).*counter)[block()][lane()]), wanted);
        const uint32_t missing = __ballot_sync(~0u, is_missing);
        if (missing == 0) break;
        signaled = !stop_checker.must_stop(p_, c_.s, __ffs(static_cast<int>(missing)) - 1);
        if (!signaled) break;
      }
    }
    return threads.all(signaled);
  }

 private:
  static constexpr WindowSyncWords::BlockCounters kPushed = &WindowSyncWords::pushed;
  __device__ __forceinline__ static int block() { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x % kWarp); }
  __device__ __forceinline__ static bool is_first_warp() { return threadIdx.x < kWarp; }
  // Whether this lane stands for one of `ranks`.
  __device__ __forceinline__ static bool is_one_of(uint32_t ranks) {
    return (ranks >> lane() & 1) != 0;
  }

  __device__ __forceinline__ bool find_by_lanes() const {
    const uint64_t launch = c_.s.launch;
    uint64_t words[kLocationWords] = {};
    bool is_missing = is_one_of(p_.push_to);
    for (StopChecker stop_checker;;) {
      if (is_missing) {
        const auto& from = words_of(p_, p_.rank).locations[launch & 1][lane()].words;
        is_missing = false;
#pragma unroll
        for (int i = 0; i < kLocationWords; ++i) {
          words[i] = load_relaxed(&from[i]);
          is_missing |= !is_of_launch(words[i], launch);
        }
      }
      const uint32_t missing = __ballot_sync(~0u, is_missing);
      if (missing == 0) break;
      if (stop_checker.must_stop(p_, c_.s, __ffs(static_cast<int>(missing)) - 1)) return false;
    }
    const bool is_mismatched =
        is_one_of(p_.push_to) && !is_of_call(words, launch, fingerprint_in(c_.s.arrival));
    if (const uint32_t mismatched = __ballot_sync(~0u, is_mismatched)) {
      if (lane() == 0) stop_all(p_, c_.s, __ffs(static_cast<int>(mismatched)) - 1);
      return false;
    }
    const bool is_wrong =
        is_one_of(p_.push_to) && !matches_location(words, p_.location, p_.has_same_offset);
    if (is_one_of(p_.push_to)) c_.tensors[lane()] = p_.memory[lane()] + offset_in(words);
    if (const uint32_t wrong = __ballot_sync(~0u, is_wrong)) {
      const int peer = __ffs(static_cast<int>(wrong)) - 1;
      if (lane() == 0) {
        stop(p_, c_.s, kWindowMismatch, peer);
        report(p_, kWindowMismatch, peer);
      }
      return false;
    }
    return true;
  }

  const WindowCollectiveParams& p_;
  WindowBlockState& c_;
};

}  // namespace torch::comms::ctran::kernels
