#pragma once

#include "ctran/kernels/host/launch_plan.hpp"

// Prepares the launch of a reduce-scatter of float32 that travels as bfloat16.
namespace torch::comms::ctran::kernels {

// `bytes`, `tiles` and `steps` describe the bfloat16 data that travels. `input`, `output`,
// send_stride and output_bytes describe float32.
struct QuantizedParams : CollectiveParams {
  const uint64_t* seed;
  size_t count;  // elements of a part
};

struct QuantizedPlan : LaunchPlan {
  QuantizedParams params;
};
// Returns a plan without blocks if the call is invalid, or no kernel can run it.
QuantizedPlan plan_of(const TeamDescriptor& team, const QuantizedReduceScatter& call);

}  // namespace torch::comms::ctran::kernels
