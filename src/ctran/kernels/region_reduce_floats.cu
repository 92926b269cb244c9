#include "ctran/kernels/region_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_region_reduction_of_floats(Cell cell, int ranks) {
  return visit_floats<const void*>(cell, FindRegionReduction{ranks});
}

}  // namespace torch::comms::ctran::kernels
