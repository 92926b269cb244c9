#include "ctran/kernels/reducing.cuh"

namespace torch::comms::ctran::kernels {

TC_REDUCING_KERNELS(ReduceScatter, false)

const void* find_reduce_scatter(Cell cell, Shape shape, int ranks) {
  return find_hot<ReduceScatterKernels>(cell, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
