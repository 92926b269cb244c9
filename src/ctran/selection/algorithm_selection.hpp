#pragma once

#include <string>
#include <string_view>

#include "ctran/selection/tuning.hpp"

// Selects the algorithm of an operation. Pure functions: ranks with equal inputs select the same.
namespace torch::comms::ctran {

// What the user requested.
struct AlgorithmRequest {
  std::string_view algorithm = {};  // empty: the best algorithm
  int64_t chunk_bytes = -1;         // 0: everything at once; -1: the best size
};

struct AlgorithmSelection {
  const schedule::Algorithm* algorithm = nullptr;
  int64_t chunk = 0;  // elements, for schedule::Options::chunk
  enum class SelectionReason : uint8_t {
    kRequested,
    kTuned,
    kEstimated,
    kOnlyOne
  } reason = SelectionReason::kEstimated;
  double estimate_ns = 0;  // by the model; 0 for an all_to_all with different counts for each pair
};

// Returns "wished", "tuning file", "cost model" or "the only one".
std::string_view format_reason(AlgorithmSelection::SelectionReason reason) noexcept;

// Selects the algorithm for `problem`, whose chunk is ignored. A request comes first, then the
// first override that matches and supports the problem, then the model. Without a request, no
// algorithm is selected whose scratch exceeds kMostScratchBytes, unless all of them exceed it. Of
// algorithms that are nearly as fast, the first of the table is selected.
//
// Throws: CommError without context: kInvalidArgument if the request is no algorithm of this
// operation, kUnsupported if it cannot do this problem. Both name the algorithms that can.
AlgorithmSelection select_algorithm(const schedule::Problem& problem, const ElementSizes& element,
                                    const TopologyFacts& facts, const Tuning& tuning,
                                    const AlgorithmRequest& request = {});

inline constexpr int64_t kMostScratchBytes = int64_t{32} << 20;

// Checks that `algorithm` is the name of an algorithm of `operation`.
// Throws: CommError(kInvalidArgument) if it is not.
void require_algorithm(schedule::Operation operation, std::string_view algorithm);

}  // namespace torch::comms::ctran
