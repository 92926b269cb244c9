#include "ctran/kernels/collectives/reduction.cuh"

namespace torch::comms::ctran::kernels {

TC_REDUCING_KERNELS(ReduceScatter, false)

const void* find_reduce_scatter(ReducerId id, KernelShape shape, int ranks) {
  return find_hot<ReduceScatterKernels>(id, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
