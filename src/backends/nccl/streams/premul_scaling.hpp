#pragma once

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

// What PREMUL_SUM is where there is nothing to add.
namespace torch::comms::nccl {

// `input` by `factor` into `output`, which may be the same memory, on the current stream; both are
// contiguous, of one dtype and count. Throws CommError(kInvalidArgument) without context.
void scale(const at::Tensor& output, const at::Tensor& input, const PreMulSumFactorT& factor);

}  // namespace torch::comms::nccl
