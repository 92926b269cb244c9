#pragma once

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

// PREMUL_SUM for a single rank, where no operands are added.
namespace torch::comms::nccl {

// Writes `input` times `factor` to `output` on the current stream. Both tensors are contiguous,
// have the same dtype and count, and may be the same memory.
// Throws: CommError(kInvalidArgument) without context.
void scale(const at::Tensor& output, const at::Tensor& input, const PreMulSumFactorT& factor);

}  // namespace torch::comms::nccl
