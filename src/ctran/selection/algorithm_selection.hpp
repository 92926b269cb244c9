#pragma once

#include <string>
#include <string_view>

#include "ctran/selection/tuning.hpp"

// Which algorithm runs an operation. Pure functions: ranks that know the same choose the same.
namespace torch::comms::ctran {

// What the user asked for.
struct AlgorithmRequest {
  std::string_view algorithm = {};  // empty: the best one
  int64_t chunk_bytes = -1;         // 0: everything at once; -1: the best one
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
  double estimate_ns = 0;  // by the model; 0 for an all_to_all with counts of its own for each pair
};

// "wished", "tuning file", "cost model", "the only one".
std::string_view format_reason(AlgorithmSelection::SelectionReason why) noexcept;

// The algorithm for `problem`, whose chunk is not looked at. It follows the wish, else the first
// override that fits and can do it, else the model; without a wish nothing is chosen whose scratch
// is over kMostScratchBytes as long as there is another way. Of algorithms that are nearly as fast
// the first of the table is taken.
//
// Throws CommError without context: kInvalidArgument for a wish that is no algorithm of this
// operation, kUnsupported for one that cannot do this problem, both naming those that can.
AlgorithmSelection select_algorithm(const schedule::Problem& problem, const ElementSizes& element,
                                    const TopologyFacts& facts, const Tuning& tuning,
                                    const AlgorithmRequest& wish = {});

inline constexpr int64_t kMostScratchBytes = int64_t{32} << 20;

// Throws CommError(kInvalidArgument) unless `algorithm` is a name of an algorithm of `operation`.
void require_algorithm(schedule::Operation operation, std::string_view algorithm);

}  // namespace torch::comms::ctran
