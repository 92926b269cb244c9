#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <torchcomms/types.hpp>

#include "backends/gloo/reduction_plan.hpp"

// The arithmetic of reductions that happens on this rank. All tensors are flat (flat_view.hpp). Any
// thread, under any mode of torch: nothing here is differentiated, recorded, cast automatically or
// seen by Python.
namespace torch::comms::gloo {

// The elements of `tensor` as `plan` combines them, multiplied by `factor` where it premultiplies.
// Shares the tensor's memory where the plan converts nothing, unless `own_memory`; the tensor is
// changed then.
at::Tensor prepare(const at::Tensor& tensor, const ReductionPlan& plan,
                   const PreMulSumFactorT* factor, bool own_memory);

// From combined elements to the result, into `output`, which may be the same memory.
void write_result(const at::Tensor& combined, const at::Tensor& output, const ReductionPlan& plan,
                  int size);

// Combines the `size` equal parts of `rows`, one a rank, in rank order, and settles the result into
// `output`. The parts are as prepare() makes them, or else (not `prepared`) still of dtype
// `plan.view`. Changes `rows`.
void combine_rows(const at::Tensor& rows, bool prepared, const at::Tensor& output,
                  const ReductionPlan& plan, int size);

}  // namespace torch::comms::gloo
