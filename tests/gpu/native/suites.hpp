#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "world.hpp"

namespace native {

struct Settings {
  int least_ranks = 2, most_ranks = 8;
  uint64_t seed = 1;
  uint64_t first_launch = 1;
  bool quick = false;
};

// Each prints what it does and throws at the first fault.
void check_shapes(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_arithmetic(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_sequences(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_large(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_gpe(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_graphs(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_exchange(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_device_alltoallv(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_reduce_scatter_quantized(const kernels::KernelFunctionTable& library,
                                    const Settings& settings);
void check_mismatch(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_regions(const kernels::KernelFunctionTable& library, const Settings& settings);
void check_stops(const kernels::KernelFunctionTable& library, const Settings& settings);

}  // namespace native
