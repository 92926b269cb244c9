#include "monitor/rank_status.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace torch::comms::monitor {
namespace {

static_assert(std::has_unique_object_representations_v<RankStatus>);

// Returns the text for a state without progress.
const char* words(RankStatus::State state) noexcept {
  switch (state) {
    case RankStatus::State::kClosed:
      return "it has closed the communicator";
    case RankStatus::State::kFailed:
      return "its process or connection has failed";
    default:
      return "other progress";
  }
}

}  // namespace

bool operator==(const RankStatus& a, const RankStatus& b) noexcept {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

RankStatusSet::Kind& RankStatusSet::kind_of(const RankStatus& answer) {
  const auto found =
      std::ranges::find_if(kinds_, [&](auto& kind) { return kind.status == answer; });
  if (found != kinds_.end()) return *found;
  if (kinds_.size() + 1 < kMaxKinds || answer.state == RankStatus::State::kOther)
    return kinds_.emplace_back(Kind{answer, {}});
  return kind_of({.state = RankStatus::State::kOther});
}

void RankStatusSet::join(std::vector<RankInterval>& into, const std::vector<RankInterval>& more) {
  into.insert(into.end(), more.begin(), more.end());
  std::ranges::sort(into, {}, &RankInterval::first);
  size_t last = 0;
  for (size_t i = 1; i < into.size(); ++i) {
    if (into[i].first <= into[last].last + 1)
      into[last].last = std::max(into[last].last, into[i].last);
    else
      into[++last] = into[i];
  }
  into.resize(last + 1);
}

void RankStatusSet::add(int rank, const RankStatus& answer) {
  join(kind_of(answer).ranks, {{rank, rank}});
}

void RankStatusSet::merge(const RankStatusSet& others) {
  for (const auto& kind : others.kinds_) join(kind_of(kind.status).ranks, kind.ranks);
}

template <class Body>
void RankStatusSet::for_each(const Body& body) const {
  for (const auto& kind : kinds_)
    for (const auto& range : kind.ranks)
      for (int rank = range.first; rank <= range.last; ++rank) body(rank, kind.status);
}

ProgressReport RankStatusSet::progress_report(int size, uint64_t number,
                                              std::chrono::milliseconds waited) const {
  ProgressReport seen{.size = size, .number = number, .waited = waited};
  for_each([&](int rank, const RankStatus& answer) {
    if (answer.state == RankStatus::State::kPresent)
      seen.progress[rank] = answer.progress;
    else
      seen.unreachable[rank] = words(answer.state);
    if (answer.state == RankStatus::State::kClosed) seen.closed.push_back(rank);
  });
  for (const auto& [rank, place] : seen.progress) seen.unreachable.erase(rank);
  std::erase_if(seen.closed, [&](int rank) { return !seen.unreachable.contains(rank); });
  return seen;
}

std::unordered_map<int, Fingerprint> RankStatusSet::fingerprints(uint64_t number) const {
  std::unordered_map<int, Fingerprint> prints;
  for_each([&](int rank, const RankStatus& answer) {
    for (const auto& print : answer.fingerprints)
      if (number != 0 && print.sequence == number) prints[rank] = print;
  });
  return prints;
}

void RankStatusSet::write(transport::ByteWriter& writer) const {
  writer.add(static_cast<uint32_t>(kinds_.size()));
  for (const auto& kind : kinds_) {
    writer.add(kind.status).add(static_cast<uint32_t>(kind.ranks.size()));
    for (const auto& range : kind.ranks) writer.add(range);
  }
}

RankStatusSet RankStatusSet::read(transport::ByteReader& reader, int size) {
  RankStatusSet answers;
  const auto kinds = reader.number<uint32_t>();
  reader.require(kinds <= kMaxKinds, "too many statuses");
  for (uint32_t i = 0; i < kinds; ++i) {
    auto& kind = answers.kinds_.emplace_back();
    kind.status = reader.number<RankStatus>();
    reader.require(kind.status.state <= RankStatus::State::kOther, "unknown state");
    const auto ranges = reader.number<uint32_t>();
    int32_t next = 0;
    for (uint32_t r = 0; r < ranges; ++r) {
      const auto range = reader.number<RankInterval>();
      reader.require(range.first >= next && range.last >= range.first && range.last < size,
                     "ranks are out of range");
      next = range.last + 1;
      kind.ranks.push_back(range);
    }
    reader.require(!kind.ranks.empty(), "a status without ranks");
  }
  return answers;
}

}  // namespace torch::comms::monitor
