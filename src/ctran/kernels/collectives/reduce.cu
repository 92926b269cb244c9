#include "ctran/kernels/collectives/reduction.cuh"

namespace torch::comms::ctran::kernels {

TC_REDUCING_KERNELS(Reduce, true)

const void* find_reduce(ReducerId cell, KernelShape shape, int ranks) {
  return find_hot<ReduceKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
