#pragma once

#include "ctran/kernels/reducing.cuh"

namespace torch::comms::ctran::kernels {

TC_ONE_SHOT(ReduceScatterOneShot)
TC_KERNEL_OF(ReduceScatterOneShot)

struct ReduceScatterKernels {
  static constexpr bool kHasTwoHops = false;
  template <class Wire, class F, int N>
  using OneShot = ReduceScatterOneShotOf<Wire, F, N>;
};

}  // namespace torch::comms::ctran::kernels
