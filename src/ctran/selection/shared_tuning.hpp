#pragma once

#include <string>
#include <string_view>

#include "ctran/selection/tuning.hpp"

// Shares rank 0's tuning file and GPU model with all ranks, because ranks with different tunings
// would select different algorithms.
namespace torch::comms::ctran {

struct SharedTuning {
  Tuning tuning;
  std::string gpu;  // to_word() of its model; "" if there is none
};

// Serializes rank 0's file, or why the file cannot be used. A file in the default place that cannot
// be used is only a warning, once in this process, and counts as no file. Never throws CommError.
std::string serialize_tuning(const TuningFile& file, std::string_view gpu);

// Parses what rank 0 serialized. Every rank calls it, rank 0 too.
// Throws: CommError, the same on all ranks: what read_tuning_file() or parse_tuning() threw on rank
// 0, or kMismatch for text that serialize_tuning() does not produce.
SharedTuning parse_shared_tuning(std::string_view serialized);

}  // namespace torch::comms::ctran
