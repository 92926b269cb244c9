#pragma once

#include <string>

#include "ctran/selection/shared_tuning.hpp"
#include "ctran/team/kernel_selection.hpp"
#include "gpu/runtime.hpp"

// Looks up the rows of a tuning file for a communicator's kernels.
namespace torch::comms::ctran {

// Returns: the device's model name as in tuning files; "" if it is not known.
std::string gpu_model_name(const gpu::Runtime& runtime, int device);

// Returns: the rows for `ranks` ranks on rank 0's GPU model. With `warns`, logs a warning, once per
// process, if the file has kernel rows but none of them applies.
MeasuredRows find_tuning_rows(const SharedTuning& shared_tuning, int ranks, bool warns);

}  // namespace torch::comms::ctran
