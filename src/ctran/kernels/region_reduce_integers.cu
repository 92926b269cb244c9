#include "ctran/kernels/region_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_region_reduction_of_integers(Cell cell, int ranks) {
  return visit_integers<const void*>(cell, FindRegionReduction{ranks});
}

}  // namespace torch::comms::ctran::kernels
