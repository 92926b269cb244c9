#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ctran/selection/cost_model.hpp"
#include "ctran/selection/kernel_tuning_rows.hpp"

// What is known of a machine's speed, and its text: version 1 of a line format.
//
//   torchcomms tuning 1
//   # the rest of a line is for people
//   cache near_bytes 1048576 far 2
//   wire shm apart step_ns 350 message_ns 150 byte_ps 45 reduce_ps 15
//   use all_reduce wire shm ranks 2..4 bytes 0..32768 algorithm one_shot chunk_bytes 0
//   kernel ...                                                   (kernel_tuning_rows.hpp)
//
// Fields stand in this order. Links without a line keep the default constants. Of several `use` or
// `kernel` lines that match, the first counts. `bytes`: the operation's whole vector, which is the
// largest buffer of a rank.
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
  std::string source = "built-in constants";  // for readers of logs
};

inline constexpr size_t kMaxTuningBytes = size_t{128} * 1024;
inline constexpr size_t kMaxOverrides = 1024;  // and as many kernel lines

// Parses a tuning file of any content.
// Throws: CommError: kTooLarge over a limit; kInvalidArgument, which names `source`, the line, the
// field, the text found and what is allowed.
Tuning parse_tuning(std::string_view text, const std::string& source);

// Returns a text that parse_tuning() parses to the same values.
std::string to_text(const Tuning& tuning);

struct TuningFile {
  std::string path;     // empty: no file
  std::string setting;  // such as "hint ctran::tuning_file"; "" for the default place, where a file
                        // is optional

  // Returns a name for errors: "hint ctran::tuning_file: the tuning file /a/b".
  std::string format_name() const;
};

// Returns the file that `hint` names with `value`. If that is empty, it is the file of
// TORCHCOMM_CTRAN_TUNING_FILE, else ~/.cache/torchcomms/tuning-<processor>.txt, or none without a
// home folder.
TuningFile find_tuning_file(std::string_view hint = {}, std::string_view value = {});

// Returns the text of a file; "" if there is none in the default place.
// Throws: CommError, with format_name(): kInvalidArgument if a named file cannot be read, kSystem
// if the default file cannot be read, kTooLarge.
std::string read_tuning_file(const TuningFile& from = find_tuning_file());

}  // namespace torch::comms::ctran
