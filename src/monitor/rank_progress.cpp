#include "monitor/rank_progress.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>

namespace torch::comms::monitor {

static_assert(std::has_unique_object_representations_v<RankProgress>);

namespace {

constexpr int kMaxRanges = 12;    // printed in one list of ranks
constexpr size_t kMaxGroups = 6;  // different progress texts printed
constexpr size_t kMaxLags = 4;

std::string counted(uint64_t number, const char* one) {
  return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
}

std::string collective(const Fingerprint& fingerprint) {
  const bool sized =
      fingerprint.sequence != 0 && fingerprint.count >= 0 && fingerprint.element_bytes > 0;
  const auto bytes =
      static_cast<uint64_t>(std::max<int64_t>(fingerprint.count, 0)) * fingerprint.element_bytes;
  return fingerprint.format() + (sized && bytes > 0 ? " (" + counted(bytes, "byte") + ")" : "");
}

// Joins the groups with "; ", the smallest first, because the mistake is probably theirs.
template <class Key, class FormatGroup>
std::string join_smallest_first(const std::map<Key, std::vector<int>>& groups, size_t most,
                                const FormatGroup& format_group) {
  std::multimap<size_t, const std::pair<const Key, std::vector<int>>*> sorted;
  for (const auto& group : groups) sorted.emplace(group.second.size(), &group);
  std::string text;
  size_t left = 0, named = 0;
  for (const auto& [size, group] : sorted) {
    if (named++ < most)
      text += (named == 1 ? "" : "; ") + format_group(group->second, group->first);
    else
      left += size;
  }
  return left == 0 ? text : text + "; and " + counted(left, "rank") + " with other progress";
}

}  // namespace

std::string format_rank_list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t at = 0;
  for (int range = 0; at < ranks.size() && range < kMaxRanges; ++range) {
    size_t end = at + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    text += (at == 0 ? "" : ", ") + std::to_string(ranks[at]);
    if (end - at == 2) text += ", " + std::to_string(ranks[end - 1]);
    if (end - at > 2) text += "-" + std::to_string(ranks[end - 1]);
    at = end;
  }
  return at == ranks.size() ? text : text + " and " + std::to_string(ranks.size() - at) + " more";
}

std::string NonCollectiveCall::format() const {
  std::string text(name, ::strnlen(name, sizeof name));
  if (messages == 0 && peer < 0) return text;
  if (messages == 1) text += " of " + counted(bytes, "byte");
  if (messages <= 1 && peer >= 0)
    return text + (sends > 0 ? " to rank " : " from rank ") + std::to_string(peer);
  if (messages == 1) return text;
  return text + " of " + counted(messages, "message") + ", " + counted(bytes, "byte");
}

std::string RankProgress::format(bool with_finished_p2p) const {
  if (is_member == 0) return "not in this communicator";
  std::string text;
  if (called > finished) {
    text = fingerprint.sequence == finished + 1
               ? "in " + collective(fingerprint)
               : "about to begin number " + std::to_string(finished + 1);
    if (called > finished + 1)
      text += ", with " + std::to_string(called - finished - 1) + " more called";
    if (finished > 0) text += ", after number " + std::to_string(finished);
  } else {
    text = finished == 0 ? "before the first collective"
                         : "in no collective, after " + collective(fingerprint);
  }
  if (p2p_started > p2p_finished)
    text += "; in " + last_p2p.format();
  else if (with_finished_p2p && p2p_started > 0)
    text += "; after " + last_p2p.format();
  return text;
}

std::vector<int> ProgressReport::silent() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank)
    if (!progress.contains(rank) && !unreachable.contains(rank)) ranks.push_back(rank);
  return ranks;
}

std::string ProgressReport::format() const {
  std::map<uint64_t, std::vector<int>> lags;  // by the number of collectives called
  std::map<std::string, std::vector<int>> where;
  for (int rank = 0; rank < size; ++rank) {
    if (const auto entry = progress.find(rank); entry != progress.end()) {
      if (entry->second.is_member != 0 && entry->second.called < number)
        lags[entry->second.called].push_back(rank);
      where[entry->second.format(number == 0)].push_back(rank);
    } else if (const auto why = unreachable.find(rank); why != unreachable.end()) {
      where[why->second].push_back(rank);
    }
  }
  std::string text = join_smallest_first(lags, kMaxLags, [&](const auto& ranks, uint64_t called) {
    return format_rank_list(ranks) + (ranks.size() == 1 ? " is " : " are ") +
           counted(number - called, "collective") + " behind, since number " +
           std::to_string(called + 1);
  });
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (const auto ranks = silent(); !ranks.empty())
    add(format_rank_list(ranks) + " did not answer within " + std::to_string(waited.count()) +
        " ms");
  const auto groups_text = join_smallest_first(
      where, kMaxGroups, [](const auto& ranks, const std::string& progress_text) {
        return format_rank_list(ranks) + ": " + progress_text;
      });
  add("where the ranks were: " + groups_text);
  return text;
}

std::vector<int> ProgressReport::culprits() const {
  auto found = silent();
  found.insert(found.end(), closed.begin(), closed.end());
  for (const auto& [rank, entry] : progress)
    if (entry.is_member == 0 || entry.called < number) found.push_back(rank);
  std::ranges::sort(found);
  return found;
}

}  // namespace torch::comms::monitor
