#include "ctran/kernels/region_reduce.cuh"

namespace torch::comms::ctran::kernels {

RegionKernel find_region_reduction_of_integers(Cell cell, Carrier carrier, int ranks) {
  return visit_integers<RegionKernel>(cell, FindRegionReduction{carrier, ranks});
}

}  // namespace torch::comms::ctran::kernels
