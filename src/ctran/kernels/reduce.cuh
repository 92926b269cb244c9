#pragma once

#include "ctran/kernels/reducing.cuh"

namespace torch::comms::ctran::kernels {

TC_ONE_SHOT(ReduceOneShot)
TC_KERNEL_OF(ReduceOneShot)
TC_TWO_SHOT(ReduceTwoShot)
TC_KERNEL_OF(ReduceTwoShot)

struct ReduceKernels {
  static constexpr bool kHasTwoHops = true;
  template <class Wire, class F, int N>
  using OneShot = ReduceOneShotOf<Wire, F, N>;
  template <class Wire, class F, int N>
  using TwoShot = ReduceTwoShotOf<Wire, F, N>;
};

}  // namespace torch::comms::ctran::kernels
