#include "ctran/kernels/all_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_all_reduce_of_small_floats(Cell cell, Shape shape, int ranks) {
  return find_of_small_floats<AllReduceKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
