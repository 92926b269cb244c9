#include "ctran/kernels/host/kernel_table.hpp"
#include "ctran/kernels/messages/rma.hpp"
#include "ctran/kernels/protocol/launch_context.cuh"

// Kernels of window operations. One warp each stores signals and values to words of a peer, or
// waits for them. Small puts have a kernel because they last less time than a copy engine takes to
// begin.
namespace torch::comms::ctran::kernels {
namespace {

// Programs look for signals in profiles and graphs by this name.
__global__ void __launch_bounds__(kWarp)
    ncclKernelSignal(const __grid_constant__ KernelRmaParams p) {
  follow_previous();
  if (threadIdx.x != 0 || load_relaxed(&header_of(p, p.rank).stop) != 0) return;
  const KernelRmaOperation& step = p.step;
  // Data that was copied before is visible to a peer that sees the word.
  fence_release();
  if (step.kind == KernelRmaOperation::Kind::kStore) {
    store_relaxed(slots_of(step.there) + step.slot, step.value);
    return;
  }
  const uint64_t count = step.own->sent[step.peer] + 1;
  step.own->sent[step.peer] = count;
  store_relaxed(&step.there->received[p.rank], count);
}

__global__ void __launch_bounds__(kWarp) AwaitSignal(const __grid_constant__ KernelRmaParams p) {
  follow_previous();
  const KernelRmaOperation& step = p.step;
  const bool counts = step.kind == KernelRmaOperation::Kind::kWaitSignal;
  const uint64_t* word = counts ? &step.own->received[step.peer] : slots_of(step.own) + step.slot;
  uint64_t wanted = step.value;
  // The count is taken at once: a replay may wait in parallel with a call, and each must have a
  // signal of its own.
  if (counts && threadIdx.x == 0)
    wanted = atomicAdd(reinterpret_cast<unsigned long long*>(&step.own->awaited[step.peer]), 1) + 1;
  LaunchContext s{};
  s.start_ns = now_ns();
  s.stopped = load_relaxed(&header_of(p, p.rank).stop) != 0;
  for (StopChecker stop_checker; !s.stopped;) {
    const bool satisfied = threadIdx.x == 0 && is_satisfied(step, load_acquire(word), wanted);
    if (__any_sync(~0u, satisfied)) break;
    s.stopped = stop_checker.must_stop(p, s, counts ? step.peer : -1);
  }
}

// Copies the bytes from `begin` on as elements of T, to which both addresses are aligned.
// Returns: where the copy ended.
template <class T>
__device__ __forceinline__ uint64_t copy_as(const KernelRmaOperation& step, uint64_t begin) {
  const uint64_t elements = (step.size_bytes - begin) / sizeof(T), all = gridDim.x * blockDim.x;
  const auto* const from = reinterpret_cast<const T*>(step.from + begin);
  auto* const into = reinterpret_cast<T*>(step.into + begin);
#pragma unroll 4
  for (uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += all)
    into[i] = from[i];
  return begin + elements * sizeof(T);
}

__global__ void __launch_bounds__(kPutThreads) PutBytes(const __grid_constant__ KernelRmaParams p) {
  follow_previous();
  if (load_relaxed(&header_of(p, p.rank).stop) != 0) return;
  const auto together =
      reinterpret_cast<uintptr_t>(p.step.from) | reinterpret_cast<uintptr_t>(p.step.into);
  uint64_t done = 0;
  if (together % sizeof(Vector16) == 0) done = copy_as<Vector16>(p.step, done);
  if (together % sizeof(uint32_t) == 0) done = copy_as<uint32_t>(p.step, done);
  copy_as<uint8_t>(p.step, done);
}

}  // namespace

const void* find_rma(KernelRmaOperation::Kind kind) {
  if (kind == KernelRmaOperation::Kind::kPut) return reinterpret_cast<const void*>(&PutBytes);
  return is_wait(kind) ? reinterpret_cast<const void*>(&AwaitSignal)
                       : reinterpret_cast<const void*>(&ncclKernelSignal);
}

}  // namespace torch::comms::ctran::kernels
