#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/kernels/host/selection_rows.hpp"
#include "ctran/selection/field_parser.hpp"

// What was measured of kernels on a GPU model, as lines of a tuning file:
//
//   kernel all_reduce gpu nvidia-h200 ranks 2..2 bytes 0..131072 kind any mode eager
//     algorithm one_shot_ll blocks 64                                  (in one line)
//
// `kind`: any, float or integer; only reductions may distinguish them. `mode`: any, eager or graph.
// `algorithm`: an algorithm of the kernels, or `kernels` for their own choice, or `nccl` where a
// vendor's library is faster. `blocks`: the most blocks, 0 if the kernels decide.
// A line may end with `tensors plain` or `tensors registered`; it is then for tensors outside or
// inside windows. Only `tensors registered` may have algorithm `region`. `within <blocks>` may
// follow, for operations that may have so many blocks at most.
namespace torch::comms::ctran {

struct KernelTuningRow {
  std::string gpu;  // to_word() of its model
  kernels::SelectionRow row;
};

// Parses the rest of such a line.
// Throws: CommError as FieldParser.
KernelTuningRow parse_kernel_line(FieldParser& fields);
// Returns the word for the algorithm: "one_shot_ll", "kernels", "nccl".
std::string_view format_algorithm(const kernels::SelectionRow& row) noexcept;
// Returns the whole line.
std::string to_text(const KernelTuningRow& row);

// Converts a name to one word of lower case: "NVIDIA H200" becomes "nvidia-h200".
std::string to_word(std::string_view name);

// Returns the rows of this GPU that may match so many ranks.
std::vector<kernels::SelectionRow> rows_for(const std::vector<KernelTuningRow>& rows,
                                            std::string_view gpu, int ranks);
// Returns for which GPUs and ranks there are rows: "nvidia-h200 with 2 ranks, nvidia-b200 with 2 to
// 8".
std::string format_measured_gpus(const std::vector<KernelTuningRow>& rows);

}  // namespace torch::comms::ctran
