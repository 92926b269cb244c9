#include "ctran/kernels/reducing.cuh"

namespace torch::comms::ctran::kernels {

TC_REDUCING_KERNELS(Reduce, true)

const void* find_reduce(Cell cell, Shape shape, int ranks) {
  return find_hot<ReduceKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
