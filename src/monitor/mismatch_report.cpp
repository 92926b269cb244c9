#include "monitor/mismatch_report.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "monitor/rank_progress.hpp"

namespace torch::comms::monitor {
namespace {

constexpr size_t kMaxCalls = 4;  // different calls listed in the text

using RanksByCall = std::vector<std::pair<std::string, std::vector<int>>>;

// Returns the ranks of the calls that fewer ranks make. `sorted`: calls, those with the fewest
// ranks first.
std::vector<int> minority(const RanksByCall& sorted) {
  std::vector<int> ranks;
  for (size_t i = 0; i + 1 < sorted.size(); ++i)
    ranks.insert(ranks.end(), sorted[i].second.begin(), sorted[i].second.end());
  if (sorted.empty() || ranks.size() < sorted.back().second.size()) {
    std::ranges::sort(ranks);
    return ranks;
  }
  return sorted[0].second.size() < sorted[1].second.size() ? sorted[0].second : std::vector<int>();
}

// Names the hashed fields that differ. The hashes in the texts only separate the ranks, so the text
// says once what they stand for.
std::string describe_causes(const std::unordered_map<int, Fingerprint>& fingerprints) {
  const auto differs = [&fingerprints](uint64_t Fingerprint::* part) {
    std::set<uint64_t> seen;
    for (const auto& [rank, fingerprint] : fingerprints)
      if (fingerprint.sequence != 0) seen.insert(fingerprint.*part);
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

MismatchReport make_mismatch_report(const std::unordered_map<int, Fingerprint>& fingerprints,
                                    std::span<const int> silent, const std::string& observation) {
  MismatchReport report;
  std::map<std::string, std::vector<int>> ranks_by_call;
  // The presence flag is printed only if it differs between ranks.
  const auto is_compared = [](const auto& one) { return one.second.is_presence_only != 0; };
  const bool mixed = std::ranges::any_of(fingerprints, is_compared) &&
                     !std::ranges::all_of(fingerprints, is_compared);
  for (auto [rank, fingerprint] : fingerprints) {
    if (!mixed) fingerprint.is_presence_only = 0;
    ranks_by_call[fingerprint.format()].push_back(rank);
  }
  for (auto& [call, ranks] : ranks_by_call) std::ranges::sort(ranks);
  RanksByCall sorted(ranks_by_call.begin(), ranks_by_call.end());
  std::sort(sorted.begin(), sorted.end(),
            [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  report.reason = "ranks disagree";
  for (size_t i = 0; i < sorted.size() && i < kMaxCalls; ++i)
    report.reason += (i == 0 ? ": " : "; ") + format_rank_list(sorted[i].second) +
                     (sorted[i].second.size() == 1 ? " calls " : " call ") + sorted[i].first;
  if (sorted.size() == 1)
    report.reason +=
        "; " +
        (observation.empty() ? "a message of an earlier collective was still unread" : observation);
  report.reason += describe_causes(fingerprints);
  if (mixed) report.reason += "; check_calls is not the same on all ranks";
  if (!silent.empty()) report.reason += "; " + format_rank_list(silent) + " did not answer";
  report.ranks = minority(sorted);
  return report;
}

}  // namespace torch::comms::monitor
