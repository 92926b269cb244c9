#include "ctran/kernels/windows/window_reduce.cuh"

namespace torch::comms::ctran::kernels {

const void* find_window_reduction_of_integers(ReducerId id, int ranks) {
  return visit_integers<const void*>(id, FindWindowReduction{ranks});
}

}  // namespace torch::comms::ctran::kernels
