#pragma once

#include "ctran/kernels/collectives/one_shot.cuh"
#include "ctran/kernels/collectives/two_shot.cuh"

// What all kernels are made of.
namespace torch::comms::ctran::kernels {

// `P`: Params, or what a kernel has beside them. Work may look ahead, before the launch has begun,
// at what is this rank's own.
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

// A kernel of one hop, and one of two. Their names are what profilers and graphs show.
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

// The kernel of Of<Protocol, F, N> for so many ranks; what is compiled for size has one for all.
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
