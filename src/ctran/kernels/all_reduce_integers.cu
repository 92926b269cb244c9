#include "ctran/kernels/all_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_all_reduce_of_integers(Cell cell, Shape shape, int ranks) {
  return find_of_integers<AllReduceKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
