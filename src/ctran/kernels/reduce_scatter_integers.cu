#include "ctran/kernels/reduce_scatter.cuh"

namespace torch::comms::ctran::kernels {

const void* find_reduce_scatter_of_integers(Cell cell, Shape shape, int ranks) {
  return find_of_integers<ReduceScatterKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
