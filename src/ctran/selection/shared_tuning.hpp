#pragma once

#include <string>
#include <string_view>

#include "ctran/selection/tuning.hpp"

// One rank's tuning counts for a whole job, or its ranks would choose differently: what rank 0
// tells the others of its file, and of its GPU.
namespace torch::comms::ctran {

struct SharedTuning {
  Tuning tuning;
  std::string gpu;  // a to_word() its model; "" where there is none
};

// A file as it is told; also that it cannot be used, which in the usual place is a warning, once in
// this process, and no file. Never throws CommError.
std::string serialize_tuning(const TuningFile& file, std::string_view gpu);

// What was told, on every rank, rank 0 too. Throws CommError, the same everywhere: of
// read_tuning_file() or parse_tuning() on rank 0, kSizeMismatch for what nobody tells.
SharedTuning parse_shared_tuning(std::string_view told);

}  // namespace torch::comms::ctran
