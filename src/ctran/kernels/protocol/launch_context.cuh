#pragma once

#include "ctran/kernels/collectives/scaling.hpp"
#include "ctran/kernels/protocol/device.cuh"
#include "ctran/kernels/protocol/params.hpp"
#include "ctran/kernels/protocol/workspace_layout.hpp"

// The life of a launch: its number, the arrival of the peers, its work, and what happens when it
// has to stop.
namespace torch::comms::ctran::kernels {

// State of one launch, shared by the threads of a block.
struct LaunchContext {
  uint64_t launch;
  uint64_t arrival;  // arrival_word() of this launch; 0: not a collective
  uint64_t start_ns;
  bool stopped;  // before the launch began
  KernelPremulFactor factor;
};

__device__ __forceinline__ WorkspaceHeader& header_of(const TeamView& p, int rank) {
  return *reinterpret_cast<WorkspaceHeader*>(p.workspace[rank]);
}

// Stops this rank's kernels. The first thread that calls it records the reason. For one thread.
static __device__ __noinline__ void stop(const TeamView& p, const LaunchContext& s, StopReason why,
                                         int waited_for) {
  if (atomicCAS(reinterpret_cast<unsigned long long*>(&header_of(p, p.rank).stop), 0ull,
                static_cast<unsigned long long>(why)) != 0)
    return;
  p.control->waited_for = waited_for;
  p.control->collective = static_cast<uint32_t>(p.collective);
  p.control->launch = s.launch;
  __threadfence_system();
  *const_cast<volatile uint32_t*>(&p.control->stop) = static_cast<uint32_t>(why);
}

// Reports to `peer` that it has to stop as well. The peer finds the report while it waits, or at
// its next launch. For one thread.
__device__ __forceinline__ void report(const TeamView& p, StopReason why, int peer) {
  store_relaxed(&header_of(p, peer).reported, report_of(why, p.rank));
}

// Stops this rank and all peers because `peer` has called something else. For one thread.
static __device__ __noinline__ void stop_all(const TeamView& p, const LaunchContext& s, int peer) {
  stop(p, s, StopReason::kCallMismatch, peer);
  for (int rank = 0; rank < p.size; ++rank)
    if (rank != p.rank) report(p, StopReason::kCallMismatch, rank);
}

// Whether the timeout has passed; `timeout_ns` 0: never. `passed_ns` may be slightly below 0.
__device__ __forceinline__ bool has_passed(uint64_t timeout_ns, uint64_t passed_ns) {
  return timeout_ns != 0 && static_cast<int64_t>(passed_ns - timeout_ns) > 0;
}

// Checks whether this rank's kernels have to stop, and stops them if so. For one thread; it is
// slow. `waited_for`: the rank that this one waits for; -1: none.
static __device__ __noinline__ bool must_stop(const TeamView& p, const LaunchContext& s,
                                              int waited_for) {
  constexpr uint64_t kLookEvery_ns = 50000;
  WorkspaceHeader& own = header_of(p, p.rank);
  if (load_relaxed(&own.stop) != 0) return true;
  const uint64_t now = now_ns();
  StopReason why = StopReason::kNone;
  if (const uint64_t report = load_relaxed(&own.reported)) {
    why = reason_of(report);
    waited_for = reporter_of(report);
  } else if (p.timeout_ns != kControlTimeout && has_passed(p.timeout_ns, now - s.start_ns)) {
    why = StopReason::kTimeout;
  } else {
    auto* looked = reinterpret_cast<unsigned long long*>(&own.last_check_ns);
    const unsigned long long last = load_relaxed(&own.last_check_ns);
    if (now - last >= kLookEvery_ns && atomicCAS(looked, last, now) == last) {
      store_relaxed(&own.quiesced, load_relaxed(&p.control->quiesced));
      if (load_relaxed(&p.control->abort) != 0)
        why = StopReason::kAborted;
      else if (p.timeout_ns == kControlTimeout &&
               has_passed(load_relaxed(&p.control->timeout_ns), now - s.start_ns))
        why = StopReason::kTimeout;
    }
  }
  if (why == StopReason::kNone) return false;
  stop(p, s, why, waited_for);
  return true;
}

// Checks for a stop, also for a peer that has called something else. For all lanes of a warp
// together.
__device__ __forceinline__ bool warp_must_stop(const TeamView& p, const LaunchContext& s,
                                               int waited_for) {
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const bool is_mismatched =
      s.arrival != 0 && lane < p.size && lane != p.rank &&
      has_call_mismatch(load_relaxed(&header_of(p, p.rank).arrival[lane]), s.arrival);
  const uint32_t mismatched = __ballot_sync(~0u, is_mismatched);
  if (lane == 0 && mismatched != 0) stop_all(p, s, __ffs(static_cast<int>(mismatched)) - 1);
  const bool over = lane == 0 && (mismatched != 0 || must_stop(p, s, waited_for));
  return __any_sync(~0u, over);
}

// Checks for a stop while the block waits for no peer. For all threads of a block together.
__device__ __forceinline__ bool block_must_stop(const TeamView& p, const LaunchContext& s) {
  return __syncthreads_or(threadIdx.x == 0 && must_stop(p, s, -1)) != 0;
}

// Returns the rank that lane 0 waits for if it is known to be quiesced, else -1. All that a
// quiesced rank has written is visible to later polls. For all lanes of a warp together.
__device__ __forceinline__ int quiesced_peer(const TeamView& p, int waited_for) {
  waited_for = __shfl_sync(~0u, waited_for, 0);
  if (waited_for < 0) return -1;
  const uint32_t quiesced = __shfl_sync(~0u, load_relaxed(&header_of(p, p.rank).quiesced), 0);
  if ((quiesced >> waited_for & 1) == 0) return -1;
  __threadfence_system();
  return waited_for;
}

// Counts failed polls of memory, and checks for a stop after every 32 of them.
class StopChecker {
 public:
  // Call it after a failed poll, with all lanes of a warp. `waits_for_peer`: false if the warp
  // waits for its own block, which does not depend on a peer that has left.
  // Returns: true if the launch has to stop.
  __device__ __forceinline__ bool must_stop(const TeamView& p, const LaunchContext& s,
                                            int waited_for, bool waits_for_peer = true) {
    if (++looks_ % kLooks != 0) return false;
    looks_ = check_stop(p, s, waited_for, waits_for_peer, looks_);
    return looks_ == kOver;
  }

 private:
  static constexpr uint32_t kLooks = 32, kOver = 1;

  // Checks for a stop. The result is the next value of looks_, or kOver. It also encodes which
  // quiesced rank was found, so that loops which wait need one register for both.
  static __device__ __noinline__ uint32_t check_stop(const TeamView& p, const LaunchContext& s,
                                                     int waited_for, bool waits_for_peer,
                                                     uint32_t looks) {
    if (warp_must_stop(p, s, waited_for)) return kOver;
    const int quiesced = waits_for_peer ? quiesced_peer(p, waited_for) : -1;
    const int quiesced_before = static_cast<int>(looks / kLooks) - 2;
    if (quiesced < 0 || quiesced != quiesced_before)
      return static_cast<uint32_t>(quiesced + 1) * kLooks;
    // Since the last check the warp has polled again for all that the quiesced rank had written.
    if (threadIdx.x % kWarp == 0) stop(p, s, StopReason::kPeerLeft, quiesced);
    return kOver;
  }

  uint32_t looks_ = 0;
};

// Begins a launch that is not a collective; `launch` is its number among launches of its kind. Sets
// s.stopped if it must not run. For one thread.
__device__ __forceinline__ void begin_concurrent(const TeamView& p, LaunchContext& s,
                                                 uint64_t launch) {
  const WorkspaceHeader& own = header_of(p, p.rank);
  s.launch = launch;
  s.arrival = 0;
  s.start_ns = now_ns();
  s.stopped =
      load_relaxed(&own.stop) != 0 || (load_relaxed(&own.reported) != 0 && must_stop(p, s, -1));
}

// Gives the slots that peers write in the next launch a flag of a past launch. For a warp.
static __device__ __noinline__ void clear_ll(const CollectiveParams& p, uint64_t launch) {
  const WorkspaceLayout layout(p.size);
  const uint64_t past = past_launch(launch), generation = (launch + 1) & 1;
  const size_t run = generation_bytes(PacketProtocol::kLL, p.size);
  const uint32_t flag = ll_flag(past, 0, 0);
  char* slots = p.workspace[p.rank] + layout.ll + generation * run;
  for (int peer = 1; peer < p.size; ++peer, slots += 2 * run)
    for (size_t at = threadIdx.x % kWarp * 16; at < run; at += kWarp * 16)
      store_volatile(slots + at, Vector16{flag, flag, flag, flag});
}
static __device__ __noinline__ void clear_lines(const CollectiveParams& p, uint64_t launch) {
  constexpr size_t kLineBytes = 128;
  const WorkspaceLayout layout(p.size);
  const uint64_t flag = ll128_flag(past_launch(launch), 0, 0), generation = (launch + 1) & 1;
  const size_t run = generation_bytes(PacketProtocol::kLL128, p.size), lane = threadIdx.x % kWarp;
  auto& words = *reinterpret_cast<WindowSyncWords*>(p.workspace[p.rank] + layout.window_sync_words);
  if (lane < kMaxRanks)
    for (uint64_t& word : words.locations[generation][lane].words) store_relaxed(&word, flag);
  if (load_relaxed(&p.control->is_partial) != 0) return;
  char* slots = p.workspace[p.rank] + layout.ll128 + generation * run;
  for (int peer = 1; peer < p.size; ++peer, slots += 2 * run)
    for (size_t at = (lane + 1) * kLineBytes; at <= run; at += kWarp * kLineBytes)
      store_relaxed(reinterpret_cast<uint64_t*>(slots + at) - 1, flag);
}
static __device__ __forceinline__ void clear_next_generation(const CollectiveParams& p,
                                                             uint64_t launch) {
  const bool is_ll = clears_next_generation(launch, kLLLaunchBits),
             is_line = clears_next_generation(launch, kLL128LaunchBits);
  if (is_ll) clear_ll(p, launch);
  if (is_line) clear_lines(p, launch);
  if (!is_ll && !is_line) return;
  __threadfence();
  __syncwarp();
}

inline constexpr int kLaunches = offsetof(WorkspaceHeader, launches) / 8,
                     kStop = offsetof(WorkspaceHeader, stop) / 8,
                     kReported = offsetof(WorkspaceHeader, reported) / 8;

// Returns this thread's word of the header, for begin(). Call it as early as possible, because
// everything else waits for this load.
__device__ __forceinline__ uint64_t load_header(const CollectiveParams& p) {
  return threadIdx.x <= kReported ? load_relaxed(header_of(p, p.rank).arrival + threadIdx.x) : 0;
}

// Begins a launch: reads its number, announces it to the peers, and waits until they have begun the
// previous launch, or this one if `together`. For the first warp.
__device__ __forceinline__ void begin_warp(const CollectiveParams& p, LaunchContext& s,
                                           uint64_t word, bool together) {
  const int lane = static_cast<int>(threadIdx.x);
  const uint64_t* words = header_of(p, p.rank).arrival;
  const uint64_t launch = __shfl_sync(~0u, word, kLaunches) + 1;
  const uint64_t before = __shfl_sync(~0u, word, p.rank);
  const uint64_t fingerprint = chain_fingerprint(fingerprint_in(before), p.fingerprint),
                 arrival = arrival_word(launch, fingerprint);
  bool stopped = __shfl_sync(~0u, word, kStop) != 0;
  if (lane == 0) {
    s.launch = launch;
    s.arrival = arrival;
    s.start_ns = now_ns();
  }
  __syncwarp();
  if (__shfl_sync(~0u, word, kReported) != 0 && !stopped) {
    if (lane == 0) (void)must_stop(p, s, -1);
    stopped = true;
  }
  const bool is_peer = lane < p.size && lane != p.rank;
  if (blockIdx.x == 0 && !stopped) {
    clear_next_generation(p, launch);
    if (is_peer) store_relaxed(&header_of(p, lane).arrival[p.rank], arrival);
  }
  const uint64_t wanted = launch - (together ? 0 : 1);
  for (StopChecker stop_checker; !stopped;) {
    const bool is_mismatched = has_call_mismatch(word, arrival) || has_call_mismatch(word, before);
    const uint32_t missing =
        __ballot_sync(~0u, is_peer && (is_mismatched || !has_arrived(word, wanted)));
    if (missing == 0) break;
    if (const uint32_t mismatched = __ballot_sync(~0u, is_peer && is_mismatched)) {
      if (lane == 0) stop_all(p, s, __ffs(static_cast<int>(mismatched)) - 1);
      stopped = true;
      break;
    }
    stopped = stop_checker.must_stop(p, s, __ffs(static_cast<int>(missing)) - 1);
    if (is_peer) word = load_relaxed(words + lane);
  }
  if (lane == 0) s.stopped = stopped;
}

static __device__ __noinline__ void read_factor(const CollectiveParams& p, LaunchContext& s) {
  s.factor = p.factor != nullptr ? factor_at(p.dtype, p.factor) : factor_from(p.factor_value);
}

// Begins a launch. `word`: the result of load_header(); `ticket` is for end(). For all threads of a
// block.
// Returns: false if the launch has to stop already.
template <bool kMayScale = true>
__device__ __forceinline__ bool begin(const CollectiveParams& p, LaunchContext& s, uint64_t word,
                                      bool together, uint32_t& ticket) {
  if (threadIdx.x < kWarp) begin_warp(p, s, word, together);
  if (kMayScale && p.has_factor && threadIdx.x == 0) read_factor(p, s);
  __syncthreads();
  // The launch number may be incremented once all blocks have read it. No thread waits for this.
  if (threadIdx.x == 0) ticket = atomicInc(&header_of(p, p.rank).ticket, gridDim.x - 1);
  return !s.stopped;
}

// Fills the output with NaN after a stop, together with all blocks that stopped as well. First
// waits up to 0.2 ms for the other blocks to end their work.
static __device__ __noinline__ void poison_output(const CollectiveParams& p,
                                                  const LaunchContext& s) {
  constexpr size_t kPiece = 65536;
  constexpr uint64_t kMoment_ns = 200000;
  WorkspaceHeader& own = header_of(p, p.rank);
  const uint32_t parity = s.launch & 1;
  if (threadIdx.x == 0) {
    const uint64_t start = now_ns();
    while (load_relaxed(&own.exited_blocks[parity]) < gridDim.x && now_ns() - start < kMoment_ns) {
    }
  }
  if (p.nan == 0 || p.output == nullptr) return;
  __shared__ uint32_t piece;
  for (;;) {
    __syncthreads();
    if (threadIdx.x == 0) piece = atomicAdd(&own.poisoned_pieces[parity], 1);
    __syncthreads();
    const size_t begin = piece * kPiece;
    if (begin >= p.output_bytes) return;
    const size_t end = begin + kPiece < p.output_bytes ? begin + kPiece : p.output_bytes;
    for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
      p.output[i] = static_cast<char>(p.nan >> (i % 8 * 8));
  }
}

// Ends a launch. `done`: false if this thread's work had to stop. For all threads of a block.
__device__ __forceinline__ void end(const CollectiveParams& p, const LaunchContext& s, bool done,
                                    uint32_t ticket) {
  const bool stopped = __syncthreads_or(!done) != 0;
  if (threadIdx.x == 0) {
    WorkspaceHeader& own = header_of(p, p.rank);
    if (ticket == gridDim.x - 1) {
      const uint32_t next = (s.launch + 1) & 1;
      own.exited_blocks[next] = 0;
      own.poisoned_pieces[next] = 0;
      own.launches = s.launch;
      own.arrival[p.rank] = s.arrival;
    }
    atomicAdd(&own.exited_blocks[s.launch & 1], 1);
  }
  if (stopped) poison_output(p, s);
}

}  // namespace torch::comms::ctran::kernels
