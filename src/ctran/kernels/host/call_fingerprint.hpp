#pragma once

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"

// What all ranks have to call alike, in 64 bits: the collective, the bytes, the root, and of
// reductions the dtype and the operation. What a rank may have to itself, addresses and factors
// among it, is left out.
namespace torch::comms::ctran::kernels {

// `how`: what else the data's way depends on.
uint64_t fingerprint_of(const KernelCall& call, uint64_t how = 0) noexcept;
uint64_t print_of(const QuantizedReduceScatter& call, uint64_t how = 0) noexcept;
// Region and size are for the ranks' places (region_layout.hpp).
uint64_t print_of(const WindowCollectiveCall& call) noexcept;

}  // namespace torch::comms::ctran::kernels
