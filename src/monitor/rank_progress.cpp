#include "monitor/rank_progress.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>

namespace torch::comms::monitor {

static_assert(std::has_unique_object_representations_v<RankProgress>);

namespace {

constexpr int kRanges = 12;    // printed in one list of ranks
constexpr size_t kPlaces = 6;  // different progress texts printed
constexpr size_t kLags = 4;

std::string counted(uint64_t number, const char* one) {
  return std::to_string(number) + " " + one + (number == 1 ? "" : "s");
}

std::string collective(const Fingerprint& print) {
  const bool sized = print.sequence != 0 && print.count >= 0 && print.element_bytes > 0;
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(print.count, 0)) * print.element_bytes;
  return print.format() + (sized && bytes > 0 ? " (" + counted(bytes, "byte") + ")" : "");
}

// Joins the groups with "; ", the smallest first, because the mistake is probably theirs.
template <class Key, class Words>
std::string by_few(const std::map<Key, std::vector<int>>& groups, size_t most, const Words& words) {
  std::multimap<size_t, const std::pair<const Key, std::vector<int>>*> sorted;
  for (const auto& group : groups) sorted.emplace(group.second.size(), &group);
  std::string text;
  size_t left = 0, named = 0;
  for (const auto& [size, group] : sorted) {
    if (named++ < most)
      text += (named == 1 ? "" : "; ") + words(group->second, group->first);
    else
      left += size;
  }
  return left == 0 ? text : text + "; and " + counted(left, "rank") + " with other progress";
}

}  // namespace

std::string format_rank_list(std::span<const int> ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t at = 0;
  for (int range = 0; at < ranks.size() && range < kRanges; ++range) {
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

std::string RankProgress::format(bool asides) const {
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
  else if (asides && p2p_started > 0)
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
    if (const auto place = progress.find(rank); place != progress.end()) {
      if (place->second.is_member != 0 && place->second.called < number)
        lags[place->second.called].push_back(rank);
      where[place->second.format(number == 0)].push_back(rank);
    } else if (const auto why = unreachable.find(rank); why != unreachable.end()) {
      where[why->second].push_back(rank);
    }
  }
  std::string text = by_few(lags, kLags, [&](const auto& ranks, uint64_t called) {
    return format_rank_list(ranks) + (ranks.size() == 1 ? " is " : " are ") +
           counted(number - called, "collective") + " behind, since number " +
           std::to_string(called + 1);
  });
  const auto add = [&text](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (const auto ranks = silent(); !ranks.empty())
    add(format_rank_list(ranks) + " did not answer within " + std::to_string(waited.count()) +
        " ms");
  const auto places_text = by_few(where, kPlaces, [](const auto& ranks, const std::string& place) {
    return format_rank_list(ranks) + ": " + place;
  });
  add("where the ranks were: " + places_text);
  return text;
}

std::vector<int> ProgressReport::culprits() const {
  auto found = silent();
  found.insert(found.end(), closed.begin(), closed.end());
  for (const auto& [rank, place] : progress)
    if (place.is_member == 0 || place.called < number) found.push_back(rank);
  std::ranges::sort(found);
  return found;
}

}  // namespace torch::comms::monitor
