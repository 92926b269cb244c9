#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/selection/cost_model.hpp"
#include "ctran/selection/kernel_tuning_rows.hpp"

// What is known of a machine's speed, and its text: version 1 of a format of lines.
//
//   torchcomms tuning 1
//   # the rest of a line is for people
//   cache near_bytes 1048576 far 2
//   wire shm apart step_ns 350 message_ns 150 byte_ps 45 reduce_ps 15
//   use all_reduce wire shm ranks 2..4 bytes 0..32768 algorithm one_shot chunk_bytes 0
//   kernel ...                                                          (kernel_lines.hpp)
//
// Fields stand in this order. Wires that are not named keep the usual constants; of several `use`
// or `kernel` lines that fit, the first counts. `bytes` are those of the operation's whole vector,
// which is the largest buffer of a rank.
namespace torch::comms::ctran {

struct TuningOverride {
  schedule::Operation operation = schedule::Operation::kBarrier;
  LinkType link = LinkType::kSelf;
  int ranks_min = 1, ranks_max = 1;  // inclusive
  int64_t bytes_min = 0, bytes_max = 0;
  const schedule::Algorithm* algorithm = nullptr;
  int64_t chunk_bytes = 0;  // 0: everything at once
};

struct Tuning {
  CostConstants constants = kDefaultConstants;
  std::vector<TuningOverride> overrides;
  std::vector<KernelTuningRow> kernels;
  std::string source = "built-in constants";  // for people
};

inline constexpr size_t kMaxTuningBytes = size_t{128} * 1024;
inline constexpr size_t kMaxOverrides = 1024;  // and as many rows of kernels

// Any text. Throws CommError: kTooLarge over a cap, kInvalidArgument naming `source`, the line, the
// field, the text found and what is allowed.
Tuning parse_tuning(std::string_view text, const std::string& source);

// What parse_tuning() reads back to the same values.
std::string to_text(const Tuning& tuning);

struct TuningFile {
  std::string path;     // "": none
  std::string setting;  // "hint ctran::tuning_file"; "" for the usual place, where none need be

  // "hint ctran::tuning_file: the tuning file /a/b", for errors.
  std::string format_name() const;
};

// The file that `hint` names with `value`; where that is empty TORCHCOMM_CTRAN_TUNING_FILE, else
// ~/.cache/torchcomms/tuning-<processor>.txt, or none without a home.
TuningFile find_tuning_file(std::string_view hint = {}, std::string_view value = {});

// Its text; "" where none is in the usual place. Throws CommError: kInvalidArgument for a file that
// was named and cannot be read, kSystem for another one, kTooLarge; all with format_name().
std::string read_tuning_file(const TuningFile& from = find_tuning_file());

}  // namespace torch::comms::ctran
