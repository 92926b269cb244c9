#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "ctran/kernels/library.hpp"

// Tensors and reductions in the kernels' terms.
namespace torch::comms::ncclx {

// `count` bytes, or nothing, to be moved as they are.
ctran::kernels::Call move_call(ctran::kernels::Collective collective, size_t count,
                               const at::Tensor& input, const at::Tensor& output);

// A reduction of `count` elements; nothing where the kernels have no such factor.
std::optional<ctran::kernels::Call> reduce_call(ctran::kernels::Collective collective,
                                                const ReduceOp& op, size_t count,
                                                const at::Tensor& input, const at::Tensor& output);

}  // namespace torch::comms::ncclx
