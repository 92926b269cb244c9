#include "ctran/kernels/windows/window_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_window_reduction_of_integers(ReducerId cell, int ranks) {
  return visit_integers<const void*>(cell, FindWindowReduction{ranks});
}

}  // namespace torch::comms::ctran::kernels
