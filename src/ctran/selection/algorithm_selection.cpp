#include "ctran/selection/algorithm_selection.hpp"

#include <algorithm>
#include <array>

#include <torchcomms/base/error.hpp>

#include "base/text/utf8.hpp"

namespace torch::comms::ctran {
namespace {

using schedule::Algorithm;
using schedule::Operation;
using schedule::Problem;

constexpr std::array<int64_t, 4> kChunkBytes = {0, 64 << 10, 256 << 10, 1 << 20};
// With more ranks, sending everything at once would flood the receivers.
constexpr int kMaxDirectRanks = 64;
// A smaller advantage is within the error of the model.
constexpr double kSignificantRatio = 0.95;

std::string names(Operation operation, const Problem* problem) {
  std::string text;
  for (const auto* algorithm : schedule::algorithms()) {
    if (algorithm->operation != operation) continue;
    if (problem != nullptr && !algorithm->unsupported_reason(*problem).empty()) continue;
    text += (text.empty() ? "" : ", ") + std::string(algorithm->name);
  }
  return text;
}

int64_t elements(int64_t bytes, size_t element_bytes) {
  if (bytes <= 0) return 0;
  return std::max<int64_t>(1, bytes / static_cast<int64_t>(std::max<size_t>(1, element_bytes)));
}

// Whether each rank knows only its own counts, so that no count may decide.
bool knows_only_own_counts(const Problem& problem) {
  return problem.operation == Operation::kAllToAll &&
         !(problem.blocks.equal() && problem.receive_blocks.equal());
}

class AlgorithmSearch {
 public:
  AlgorithmSearch(const Problem& problem, const ElementSizes& element, const TopologyFacts& facts,
                  const Tuning& tuning)
      : problem_(problem), element_(element), facts_(facts), tuning_(tuning) {}

  // Considers an algorithm, with the best chunk if none is given.
  void consider(const Algorithm& algorithm, int64_t chunk_bytes) {
    if (chunk_bytes >= 0) return consider_at(algorithm, chunk_bytes);
    for (const int64_t bytes : kChunkBytes) consider_at(algorithm, bytes);
  }

  bool has_found() const { return best_.algorithm != nullptr; }
  AlgorithmSelection best(AlgorithmSelection::SelectionReason reason) const {
    AlgorithmSelection choice = best_;
    choice.reason = reason;
    return choice;
  }

 private:
  void consider_at(const Algorithm& algorithm, int64_t chunk_bytes) {
    Problem problem = problem_;
    problem.options.chunk = elements(chunk_bytes, element_.bytes);
    AlgorithmSelection choice{.algorithm = &algorithm, .chunk = problem.options.chunk};
    bool fits = true;
    if (!knows_only_own_counts(problem)) {
      choice.estimate_ns =
          ctran::estimate_ns(algorithm, problem, element_, facts_, tuning_.constants);
      fits = algorithm.cost(problem).scratch * static_cast<int64_t>(element_.bytes) <=
             kMostScratchBytes;
    }
    const bool better =
        !has_found() || (fits && !best_fits_) ||
        (fits == best_fits_ && choice.estimate_ns < kSignificantRatio * best_.estimate_ns);
    if (!better) return;
    best_ = choice;
    best_fits_ = fits;
  }

  const Problem& problem_;
  const ElementSizes& element_;
  const TopologyFacts& facts_;
  const Tuning& tuning_;
  AlgorithmSelection best_;
  bool best_fits_ = false;
};

bool fits(const TuningOverride& row, const Problem& problem, LinkType link, int64_t bytes) {
  return row.operation == problem.operation && row.link == link && row.ranks_min <= problem.size &&
         problem.size <= row.ranks_max && row.bytes_min <= bytes && bytes <= row.bytes_max &&
         row.algorithm->unsupported_reason(problem).empty();
}

const Algorithm& requested_algorithm(const Problem& problem, std::string_view name) {
  require_algorithm(problem.operation, name);
  const auto& algorithm = *schedule::find_algorithm(problem.operation, name);
  const auto why = algorithm.unsupported_reason(problem);
  if (!why.empty())
    throw CommError(Errc::kUnsupported,
                    "algorithm " + std::string(name) +
                        " cannot run this call: " + std::string(why) +
                        "; algorithms that can: " + names(problem.operation, &problem));
  return algorithm;
}

}  // namespace

std::string_view format_reason(AlgorithmSelection::SelectionReason reason) noexcept {
  constexpr std::string_view kTexts[] = {"wished", "tuning file", "cost model", "the only one"};
  return kTexts[static_cast<size_t>(reason)];
}

void require_algorithm(Operation operation, std::string_view algorithm) {
  if (schedule::find_algorithm(operation, algorithm) != nullptr) return;
  throw CommError(Errc::kInvalidArgument,
                  "algorithm '" + std::string(base::utf8_prefix(algorithm, 40)) +
                      "' is not an algorithm of " + std::string(operation_name(operation)) +
                      "; allowed: " + names(operation, nullptr));
}

AlgorithmSelection select_algorithm(const Problem& problem, const ElementSizes& element,
                                    const TopologyFacts& facts, const Tuning& tuning,
                                    const AlgorithmRequest& request) {
  AlgorithmSearch search(problem, element, facts, tuning);
  if (!request.algorithm.empty()) {
    search.consider(requested_algorithm(problem, request.algorithm), request.chunk_bytes);
    return search.best(AlgorithmSelection::SelectionReason::kRequested);
  }
  const bool counts_differ = knows_only_own_counts(problem);
  const int64_t bytes = problem.count() * static_cast<int64_t>(element.bytes);
  if (!counts_differ)
    for (const auto& row : tuning.overrides) {
      if (!fits(row, problem, facts.link, bytes)) continue;
      search.consider(*row.algorithm,
                      request.chunk_bytes >= 0 ? request.chunk_bytes : row.chunk_bytes);
      return search.best(AlgorithmSelection::SelectionReason::kTuned);
    }
  if (counts_differ) {
    search.consider(*schedule::find_algorithm(
                        problem.operation, problem.size <= kMaxDirectRanks ? "direct" : "pairwise"),
                    request.chunk_bytes);
    return search.best(AlgorithmSelection::SelectionReason::kEstimated);
  }
  int supported = 0;
  for (const auto* algorithm : schedule::algorithms()) {
    if (algorithm->operation != problem.operation ||
        !algorithm->unsupported_reason(problem).empty())
      continue;
    ++supported;
    search.consider(*algorithm, request.chunk_bytes);
  }
  if (!search.has_found())
    throw CommError(Errc::kUnsupported, "no algorithm of " +
                                            std::string(operation_name(problem.operation)) +
                                            " supports this call");
  return search.best(supported == 1 ? AlgorithmSelection::SelectionReason::kOnlyOne
                                    : AlgorithmSelection::SelectionReason::kEstimated);
}

}  // namespace torch::comms::ctran
