#include "ctran/kernels/reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_reduce_of_small_floats(Cell cell, Shape shape, int ranks) {
  return find_of_small_floats<ReduceKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
