#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "ctran/kernels/host/library.hpp"

// Tensors and reductions in the kernels' terms.
namespace torch::comms::ctran {

// `count` bytes, or nothing, to be moved as they are.
kernels::KernelCall make_copy_call(kernels::Collective collective, size_t count,
                                   const at::Tensor& input, const at::Tensor& output);

// What scales the operands of PREMUL_SUM: a number, or else one element in device memory.
struct KernelCallFactor {
  double value = 1;
  at::Tensor element;
};
// Nothing where the kernels have no such factor. `tensor`: one that is reduced.
std::optional<KernelCallFactor> kernel_call_factor(const comms::ReduceOp& op,
                                                   const at::Tensor& tensor);

// A reduction of `count` elements. `factor` must live until it is launched.
kernels::KernelCall make_reduce_call(kernels::Collective collective, const comms::ReduceOp& op,
                                     const KernelCallFactor& factor, size_t count,
                                     const at::Tensor& input, const at::Tensor& output);

}  // namespace torch::comms::ctran
