#include "ctran/kernels/find.hpp"
#include "ctran/kernels/one_sided.hpp"
#include "ctran/kernels/session.cuh"

// What windows do beside copies: words that a rank leaves with another, and waits for them. One
// warp each; data go by the copy engine, before on the same stream.
namespace torch::comms::ctran::kernels {
namespace {

__global__ void __launch_bounds__(kWarp) SignalPeer(const __grid_constant__ OneSidedParams p) {
  follow_previous();
  if (threadIdx.x != 0 || load_relaxed(&header_of(p, p.rank).stop) != 0) return;
  const OneSided& step = p.step;
  // What was copied before is there before the word is.
  fence_release();
  if (step.kind == OneSided::Kind::kStore) {
    store_relaxed(slots_of(step.there) + step.slot, step.value);
    return;
  }
  const uint64_t count = step.own->sent[step.peer] + 1;
  step.own->sent[step.peer] = count;
  store_relaxed(&step.there->came[p.rank], count);
}

__global__ void __launch_bounds__(kWarp) AwaitSignal(const __grid_constant__ OneSidedParams p) {
  follow_previous();
  const OneSided& step = p.step;
  const bool counts = step.kind == OneSided::Kind::kWaitSignal;
  const uint64_t* word = counts ? &step.own->came[step.peer] : slots_of(step.own) + step.slot;
  const uint64_t wanted = counts ? step.own->awaited[step.peer] + 1 : step.value;
  Session s{};
  s.start_ns = now_ns();
  s.stopped = load_relaxed(&header_of(p, p.rank).stop) != 0;
  for (Patience patience; !s.stopped;) {
    const bool met = threadIdx.x == 0 && is_met(step, load_acquire(word), wanted);
    if (__any_sync(~0u, met)) break;
    s.stopped = patience.is_over(p, s, counts ? step.peer : -1);
  }
  if (counts && !s.stopped && threadIdx.x == 0) step.own->awaited[step.peer] = wanted;
}

}  // namespace

const void* find_one_sided(bool waits) {
  return waits ? reinterpret_cast<const void*>(&AwaitSignal)
               : reinterpret_cast<const void*>(&SignalPeer);
}

}  // namespace torch::comms::ctran::kernels
