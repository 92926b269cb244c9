#pragma once

#include "ctran/kernels/collectives/one_shot.cuh"
#include "ctran/kernels/collectives/two_shot.cuh"

// The body that all collective kernels share: begin the launch, do the work, end the launch.
namespace torch::comms::ctran::kernels {

// Runs a launch. `P`: CollectiveParams, or a type derived from it. Work::prefetch(), if it exists,
// reads data of this rank before the launch has begun. `kTogether`: the work starts when all ranks
// have begun this launch.
template <class Work, bool kTogether, class P>
__device__ __forceinline__ void run(const P& p) {
  follow_previous();
  __shared__ LaunchContext s;
  uint32_t ticket = 0;
  const uint64_t word = load_header(p);
  bool done = false;
  if constexpr (requires { Work::prefetch(p); }) {
    const auto ahead = Work::prefetch(p);
    done = begin<Work::kMayScale>(p, s, word, kTogether, ticket);
    if (done) done = Work(p, s).run(ahead);
  } else {
    done = begin(p, s, word, kTogether, ticket);
    if (done) done = Work(p, s).run();
  }
  end(p, s, done, ticket);
}

// These macros define a kernel of one hop and of two hops. Profilers and graphs show its name.
#define TC_ONE_SHOT(Name)                                \
  template <class Protocol, class F, int N>              \
  __global__ void __launch_bounds__(kMostThreads, 1)     \
      Name(const __grid_constant__ CollectiveParams p) { \
    run<OneShot<Protocol, F, N>, false>(p);              \
  }
#define TC_TWO_SHOT(Name)                                \
  template <class Protocol, class F, int N>              \
  __global__ void __launch_bounds__(kMostThreads, 1)     \
      Name(const __grid_constant__ CollectiveParams p) { \
    run<TwoShot<Protocol, F, N>, false>(p);              \
  }

// Returns the kernel of Of<Protocol, F, N> for `ranks` ranks. A reducer that is compiled for size
// has one kernel for all numbers of ranks.
template <template <class, class, int> class Of, class Protocol, class F>
const void* for_ranks(int ranks) {
  if constexpr (F::kHot) {
    if (ranks <= 2) return Of<Protocol, F, 2>::kernel();
    if (ranks <= 4) return Of<Protocol, F, 4>::kernel();
  }
  return Of<Protocol, F, 8>::kernel();
}
#define TC_KERNEL_OF(Name)                                                                       \
  template <class Protocol, class F, int N>                                                      \
  struct Name##Of {                                                                              \
    static const void* kernel() { return reinterpret_cast<const void*>(&Name<Protocol, F, N>); } \
  };

}  // namespace torch::comms::ctran::kernels
