#include "ctran/kernels/windows/window_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_window_reduction_of_small_floats(ReducerId cell, int ranks) {
  return visit_small_floats<const void*>(cell, FindWindowReduction{ranks});
}

}  // namespace torch::comms::ctran::kernels
