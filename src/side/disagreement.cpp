#include "side/disagreement.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "side/whereabouts.hpp"

namespace torch::comms::side {
namespace {

constexpr size_t kMostCalls = 4;  // told apart

}  // namespace

Disagreement disagreement(const std::unordered_map<int, Fingerprint>& prints,
                          std::span<const int> silent, const std::string& met) {
  Disagreement found;
  std::map<std::string, std::vector<int>> callers;
  // Only where it tells ranks apart.
  const auto is_compared = [](const auto& one) { return one.second.compared != 0; };
  const bool mixed =
      std::ranges::any_of(prints, is_compared) && !std::ranges::all_of(prints, is_compared);
  for (auto [rank, print] : prints) {
    if (!mixed) print.compared = 0;
    callers[print.words()].push_back(rank);
  }
  for (auto& [call, ranks] : callers) std::ranges::sort(ranks);
  std::vector<std::pair<std::string, std::vector<int>>> sorted(callers.begin(), callers.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  found.why = "ranks disagree";
  for (size_t i = 0; i < sorted.size() && i < kMostCalls; ++i)
    found.why += (i == 0 ? ": " : "; ") + ranks_text(sorted[i].second) +
                 (sorted[i].second.size() == 1 ? " calls " : " call ") + sorted[i].first;
  if (sorted.size() == 1)
    found.why += "; " + (met.empty() ? "a message of an earlier collective was still there" : met);
  if (mixed) found.why += "; check_calls is not the same on all ranks";
  if (!silent.empty()) found.why += "; " + ranks_text(silent) + " did not answer";
  if (sorted.size() > 1 && sorted[0].second.size() == 1 && sorted[1].second.size() > 1)
    found.peer = sorted[0].second[0];
  return found;
}

}  // namespace torch::comms::side
