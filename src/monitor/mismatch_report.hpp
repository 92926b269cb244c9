#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "monitor/fingerprint.hpp"

namespace torch::comms::monitor {

// How ranks that called different things as the same collective are told so.
struct MismatchReport {
  std::string reason;  // who calls what, the few first: most likely it is their mistake
  // The minority: what is not called by most, else by the fewest; empty where neither is one call.
  std::vector<int> ranks = {};
};

// `prints`: what each rank called, by rank, of those that are known. `silent`: those that were
// asked in vain, ascending. `met`: what some rank met, where what was called is not all that can
// differ; "": nobody said.
MismatchReport make_mismatch_report(const std::unordered_map<int, Fingerprint>& prints,
                                    std::span<const int> silent, const std::string& met = {});

}  // namespace torch::comms::monitor
