#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "backends/gloo/reduction_plan.hpp"

// The part of a reduction that is computed on this rank. All tensors are flat (flat_view.hpp).
// Works in any mode of torch: autograd, profiler, autocast and Python dispatch do not see these
// operations.
// Threads: any.
namespace torch::comms::gloo {

// Returns: the elements of `tensor` in the form in which `plan` combines them, multiplied by
// `factor` for PREMUL_SUM. The result shares the memory of `tensor`, and changes it, if the plan
// converts nothing and `own_memory` is false.
at::Tensor prepare(const at::Tensor& tensor, const ReductionPlan& plan,
                   const PreMulSumFactorT* factor, bool own_memory);

// Converts combined elements to the result and writes it to `output`, which may be the same memory.
void write_result(const at::Tensor& combined, const at::Tensor& output, const ReductionPlan& plan,
                  int size);

// Combines the `size` equal parts of `rows`, one per rank, in rank order, and writes the result to
// `output`. The parts are in the form of prepare() if `prepared`, and otherwise still of dtype
// `plan.view`. Changes `rows`.
void combine_rows(const at::Tensor& rows, bool prepared, const at::Tensor& output,
                  const ReductionPlan& plan, int size);

}  // namespace torch::comms::gloo
