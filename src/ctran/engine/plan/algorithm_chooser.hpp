#pragma once

#include <cstdint>
#include <functional>

#include <torchcomms/base/export.hpp>

#include "schedule/algorithm.hpp"

namespace torch::comms::ctran {

// What an AlgorithmChooser may use. All ranks of the group agree on it, with one exception: the
// counts of an all_to_all with per-rank counts, which a chooser must not use.
struct ProblemInfo {
  const schedule::Problem& problem;
  uint64_t element_bytes = 1;  // bytes of an element as the caller has it
  bool is_reduction = false;
  // Sums use a wider dtype, also on the wire unless all operands are added at once.
  bool has_wide_accumulator = false;
  bool one_host = true;  // all members share memory
  int local_size = 1;    // members per host, if ranks are placed host by host; else 1
};

struct AlgorithmChoice {
  const schedule::Algorithm* algorithm = nullptr;
  int64_t chunk = 0;  // elements; 0: everything at once. See schedule::AlgorithmOptions
};

// Chooses the algorithm of a plan. Called once for every plan that is not cached, on the thread of
// the call. It must be pure and quick, and give the same result on all ranks. The algorithm must be
// able to do the problem (unsupported_reason() is empty).
// Threads: several threads may call it at once.
using AlgorithmChooser = std::function<AlgorithmChoice(const ProblemInfo&)>;

// Chooses by operation and size. On one host: direct algorithms, and one-shot for small data.
// Between hosts: log-step algorithms for small data, rings for large data.
TC_API AlgorithmChoice choose_by_size(const ProblemInfo& info);

}  // namespace torch::comms::ctran
