#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "ctran/kernels/host/library.hpp"

// Converts tensors and reductions into kernel calls.
namespace torch::comms::ctran {

// Returns: a call that moves `count` bytes; `input` and `output` may be undefined.
kernels::KernelCall make_copy_call(kernels::Collective collective, size_t count,
                                   const at::Tensor& input, const at::Tensor& output);

// The factor of PREMUL_SUM: a number, or one element in device memory.
struct KernelCallFactor {
  double value = 1;
  at::Tensor element;
};
// Returns: the factor of `op`; nothing if kernels do not support it. `tensor`: the tensor that is
// reduced.
std::optional<KernelCallFactor> kernel_call_factor(const comms::ReduceOp& op,
                                                   const at::Tensor& tensor);

// Returns: a call that reduces `count` elements.
// Lifetime: `factor` must live until the call is launched.
kernels::KernelCall make_reduce_call(kernels::Collective collective, const comms::ReduceOp& op,
                                     const KernelCallFactor& factor, size_t count,
                                     const at::Tensor& input, const at::Tensor& output);

}  // namespace torch::comms::ctran
