#pragma once

#include <string>

#include "ctran/selection/shared_tuning.hpp"
#include "ctran/team/kernel_selection.hpp"
#include "gpu/runtime.hpp"

// What a tuning file says of a communicator's kernels.
namespace torch::comms::ctran {

// The device's model as tuning files have it; "" where it is not known.
std::string gpu_model_name(const gpu::Runtime& runtime, int device);

// The rows for that many ranks of rank 0's GPU. Where the file has rows of kernels and none of them
// is for these, `warns` says so, once in the process.
MeasuredRows find_tuning_rows(const SharedTuning& told, int ranks, bool warns);

}  // namespace torch::comms::ctran
