#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ctran/kernels/host/selection_rows.hpp"
#include "ctran/selection/field_parser.hpp"

// What was measured of kernels on a model of GPU, as lines of a tuning's text:
//
//   kernel all_reduce gpu nvidia-h200 ranks 2..2 bytes 0..131072 kind any mode eager
//     algorithm one_shot_ll blocks 64                                  (in one line)
//
// `kind`: any, float or integer, which only what adds may tell apart; `mode`: any, eager or graph;
// `algorithm`: of the kernels, `kernels` for what they think best, `nccl` where a vendor's library
// is faster; `blocks`: at most so many, 0 where the kernels decide. At the end of a line there may
// be `tensors plain` or `tensors registered`, of those whose tensors are in windows, which alone
// have algorithm `region`; and `within <blocks>`, of operations that may have so many at most.
namespace torch::comms::ctran {

struct KernelTuningRow {
  std::string gpu;  // a to_word() its model
  kernels::SelectionRow row;
};

// The rest of such a line. Throws CommError as FieldParser.
KernelTuningRow parse_kernel_line(FieldParser& fields);
// What it says of the algorithm: "one_shot_ll", "kernels", "nccl".
std::string_view format_algorithm(const kernels::SelectionRow& row) noexcept;
// The whole line.
std::string to_text(const KernelTuningRow& row);

// A name as one word of lower case: "NVIDIA H200" is "nvidia-h200".
std::string to_word(std::string_view name);

// The rows of this GPU that may fit so many ranks.
std::vector<kernels::SelectionRow> rows_for(const std::vector<KernelTuningRow>& rows,
                                            std::string_view gpu, int ranks);
// Of which GPUs and ranks there are rows: "nvidia-h200 with 2 ranks, nvidia-b200 with 2 to 8".
std::string format_measured_gpus(const std::vector<KernelTuningRow>& rows);

}  // namespace torch::comms::ctran
