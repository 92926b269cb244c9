#include "ctran/kernels/reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_reduce_of_integers(Cell cell, Shape shape, int ranks) {
  return find_of_integers<ReduceKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
