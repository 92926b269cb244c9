#pragma once

#include "ctran/kernels/host/launch_plan.hpp"

// A reduce-scatter of float32 that travels as bfloat16, as its kernels understand it.
namespace torch::comms::ctran::kernels {

// `bytes`, `tiles` and `steps` are of what travels; `input` and `output` are of float32, as are
// send_stride and output_bytes.
struct QuantizedParams : CollectiveParams {
  const uint64_t* seed;
  size_t count;  // elements of a part
};

struct QuantizedPlan : LaunchPlan {
  QuantizedParams params;
};
// The plan has no blocks where the call makes no sense, or is for no kernel.
QuantizedPlan plan_of(const TeamDescriptor& team, const QuantizedReduceScatter& call);

}  // namespace torch::comms::ctran::kernels
