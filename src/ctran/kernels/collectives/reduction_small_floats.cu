#include "ctran/kernels/collectives/reduction.cuh"

namespace torch::comms::ctran::kernels {

TC_REDUCING_KERNELS(AllReduceOrReduceScatterOrReduce, true)

const void* find_cold_small_floats(ReducerId id, KernelShape shape, int ranks) {
  return visit_small_floats<const void*>(
      id, FindShape<AllReduceOrReduceScatterOrReduceKernels, false>{shape, ranks});
}

}  // namespace torch::comms::ctran::kernels
