#pragma once

#include "ctran/kernels/reducing.cuh"

namespace torch::comms::ctran::kernels {

TC_ONE_SHOT(AllReduceOneShot)
TC_KERNEL_OF(AllReduceOneShot)
TC_TWO_SHOT(AllReduceTwoShot)
TC_KERNEL_OF(AllReduceTwoShot)

struct AllReduceKernels {
  static constexpr bool kHasTwoHops = true;
  template <class Wire, class F, int N>
  using OneShot = AllReduceOneShotOf<Wire, F, N>;
  template <class Wire, class F, int N>
  using TwoShot = AllReduceTwoShotOf<Wire, F, N>;
};

}  // namespace torch::comms::ctran::kernels
