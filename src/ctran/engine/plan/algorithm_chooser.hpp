#pragma once

#include <cstdint>
#include <functional>

#include <torchcomms/base/export.hpp>

#include "schedule/algorithm.hpp"

namespace torch::comms::ctran {

// What an algorithm is chosen by. Only things on which all ranks of the group agree: where counts
// are this rank's own (all_to_all with given counts), a chooser must not look at them.
struct ProblemInfo {
  const schedule::Problem& problem;
  uint64_t element_bytes = 1;  // as they travel
  bool is_reduction = false;
  bool has_wide_accumulator =
      false;             // sums are kept in a wider dtype, and travel in it unless added at once
  bool one_host = true;  // all members share memory
  int local_size = 1;    // members a host, where ranks are placed host by host; else 1
};

struct AlgorithmChoice {
  const schedule::Algorithm* algorithm = nullptr;
  int64_t chunk = 0;  // elements; 0: everything at once. See schedule::Options
};

// Called once for every plan that is not cached, on the thread of the call: pure and quick, and
// may be called by several at once.
// Its algorithm can do the problem (why_not() is empty). Equal on all ranks.
using AlgorithmChooser = std::function<AlgorithmChoice(const ProblemInfo&)>;

// By operation and bytes alone: direct algorithms on one host, one-shot while it is cheap; log-step
// ones for small data and rings for large between hosts.
TC_API AlgorithmChoice choose_by_size(const ProblemInfo& question);

}  // namespace torch::comms::ctran
