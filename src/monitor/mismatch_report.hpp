#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "monitor/fingerprint.hpp"

namespace torch::comms::monitor {

// The error text of ranks that called different operations as the same collective.
struct MismatchReport {
  std::string reason;  // which ranks call what, the smallest groups first, because the mistake is
                       // probably theirs
  // The ranks that do not make the majority's call; without a majority the smallest group; empty if
  // that is ambiguous.
  std::vector<int> ranks = {};
};

// Compares what ranks called. `fingerprints`: the known fingerprints by rank. `silent`: the ranks
// that did not answer, ascending. `observation`: what a rank observed, if the fingerprints are
// equal; "": unknown.
MismatchReport make_mismatch_report(const std::unordered_map<int, Fingerprint>& fingerprints,
                                    std::span<const int> silent,
                                    const std::string& observation = {});

}  // namespace torch::comms::monitor
