#pragma once

#include "ctran/kernels/host/library.hpp"
#include "ctran/kernels/windows/window_collectives.hpp"

// Hashes what must be equal on all ranks into 64 bits: the collective, the bytes, the root, and for
// reductions the dtype and the operation. What may differ between ranks, such as addresses and
// factors, is left out.
namespace torch::comms::ctran::kernels {

// `how`: what else must be equal, such as plan_fingerprint().
uint64_t fingerprint_of(const KernelCall& call, uint64_t how = 0) noexcept;
uint64_t fingerprint_of(const QuantizedReduceScatter& call, uint64_t how = 0) noexcept;
// The window and its size are left out; ranks compare them by their locations (window_layout.hpp).
uint64_t fingerprint_of(const WindowCollectiveCall& call) noexcept;

}  // namespace torch::comms::ctran::kernels
