#include "ctran/kernels/collectives/reduction.cuh"

namespace torch::comms::ctran::kernels {

TC_REDUCING_KERNELS(Reduce, true)

const void* find_reduce(ReducerId id, KernelShape shape, int ranks) {
  return find_hot<ReduceKernels>(id, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
