#include "ctran/kernels/windows/window_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_window_reduction_of_floats(ReducerId id, int ranks) {
  return visit_floats<const void*>(id, FindWindowReduction{ranks});
}

}  // namespace torch::comms::ctran::kernels
