#include "ctran/kernels/collectives/reduction.cuh"

namespace torch::comms::ctran::kernels {

TC_REDUCING_KERNELS(AllReduce, true)

const void* find_all_reduce(ReducerId id, KernelShape shape, int ranks) {
  return find_hot<AllReduceKernels>(id, shape, ranks);
}

}  // namespace torch::comms::ctran::kernels
