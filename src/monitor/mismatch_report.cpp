#include "monitor/mismatch_report.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "monitor/rank_progress.hpp"

namespace torch::comms::monitor {
namespace {

constexpr size_t kMostCalls = 4;  // different calls listed in the text

using Callers = std::vector<std::pair<std::string, std::vector<int>>>;

// Returns the ranks of the calls that fewer ranks make. `sorted`: calls, those with the fewest
// ranks first.
std::vector<int> minority(const Callers& sorted) {
  std::vector<int> others;
  for (size_t i = 0; i + 1 < sorted.size(); ++i)
    others.insert(others.end(), sorted[i].second.begin(), sorted[i].second.end());
  if (sorted.empty() || others.size() < sorted.back().second.size()) {
    std::ranges::sort(others);
    return others;
  }
  return sorted[0].second.size() < sorted[1].second.size() ? sorted[0].second : std::vector<int>();
}

// Names the hashed fields that differ. The hashes in the texts only separate the ranks, so the text
// says once what they stand for.
std::string meant(const std::unordered_map<int, Fingerprint>& prints) {
  const auto differs = [&prints](uint64_t Fingerprint::* part) {
    std::set<uint64_t> seen;
    for (const auto& [rank, print] : prints)
      if (print.sequence != 0) seen.insert(print.*part);
    return seen.size() > 1;
  };
  std::string text;
  if (differs(&Fingerprint::algorithm_hash))
    text +=
        "; the hints that select the algorithm, such as ctran::algorithm and ctran::chunk_bytes, "
        "are not the same on all ranks";
  if (differs(&Fingerprint::counts_hash))
    text += "; the sizes of the blocks are not the same on all ranks";
  return text;
}

}  // namespace

MismatchReport make_mismatch_report(const std::unordered_map<int, Fingerprint>& prints,
                                    std::span<const int> silent, const std::string& met) {
  MismatchReport found;
  std::map<std::string, std::vector<int>> callers;
  // The presence flag is printed only if it differs between ranks.
  const auto is_compared = [](const auto& one) { return one.second.is_presence_only != 0; };
  const bool mixed =
      std::ranges::any_of(prints, is_compared) && !std::ranges::all_of(prints, is_compared);
  for (auto [rank, print] : prints) {
    if (!mixed) print.is_presence_only = 0;
    callers[print.format()].push_back(rank);
  }
  for (auto& [call, ranks] : callers) std::ranges::sort(ranks);
  Callers sorted(callers.begin(), callers.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  found.reason = "ranks disagree";
  for (size_t i = 0; i < sorted.size() && i < kMostCalls; ++i)
    found.reason += (i == 0 ? ": " : "; ") + format_rank_list(sorted[i].second) +
                    (sorted[i].second.size() == 1 ? " calls " : " call ") + sorted[i].first;
  if (sorted.size() == 1)
    found.reason +=
        "; " + (met.empty() ? "a message of an earlier collective was still unread" : met);
  found.reason += meant(prints);
  if (mixed) found.reason += "; check_calls is not the same on all ranks";
  if (!silent.empty()) found.reason += "; " + format_rank_list(silent) + " did not answer";
  found.ranks = minority(sorted);
  return found;
}

}  // namespace torch::comms::monitor
