#include "monitor/rank_status.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace torch::comms::monitor {
namespace {

static_assert(std::has_unique_object_representations_v<RankStatus>);

// Returns the text for a state without progress.
const char* state_text(RankStatus::State state) noexcept {
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

RankStatusSet::Kind& RankStatusSet::kind_of(const RankStatus& status) {
  const auto found =
      std::ranges::find_if(kinds_, [&](auto& kind) { return kind.status == status; });
  if (found != kinds_.end()) return *found;
  if (kinds_.size() + 1 < kMaxKinds || status.state == RankStatus::State::kOther)
    return kinds_.emplace_back(Kind{status, {}});
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

void RankStatusSet::add(int rank, const RankStatus& status) {
  join(kind_of(status).ranks, {{rank, rank}});
}

void RankStatusSet::merge(const RankStatusSet& other) {
  for (const auto& kind : other.kinds_) join(kind_of(kind.status).ranks, kind.ranks);
}

template <class Body>
void RankStatusSet::for_each(const Body& body) const {
  for (const auto& kind : kinds_)
    for (const auto& range : kind.ranks)
      for (int rank = range.first; rank <= range.last; ++rank) body(rank, kind.status);
}

ProgressReport RankStatusSet::progress_report(int size, uint64_t number,
                                              std::chrono::milliseconds waited) const {
  ProgressReport report{.size = size, .number = number, .waited = waited};
  for_each([&](int rank, const RankStatus& status) {
    if (status.state == RankStatus::State::kPresent)
      report.progress[rank] = status.progress;
    else
      report.unreachable[rank] = state_text(status.state);
    if (status.state == RankStatus::State::kClosed) report.closed.push_back(rank);
  });
  for (const auto& [rank, progress] : report.progress) report.unreachable.erase(rank);
  std::erase_if(report.closed, [&](int rank) { return !report.unreachable.contains(rank); });
  return report;
}

std::unordered_map<int, Fingerprint> RankStatusSet::fingerprints(uint64_t number) const {
  std::unordered_map<int, Fingerprint> result;
  for_each([&](int rank, const RankStatus& status) {
    for (const auto& fingerprint : status.fingerprints)
      if (number != 0 && fingerprint.sequence == number) result[rank] = fingerprint;
  });
  return result;
}

void RankStatusSet::write(transport::ByteWriter& writer) const {
  writer.add(static_cast<uint32_t>(kinds_.size()));
  for (const auto& kind : kinds_) {
    writer.add(kind.status).add(static_cast<uint32_t>(kind.ranks.size()));
    for (const auto& range : kind.ranks) writer.add(range);
  }
}

RankStatusSet RankStatusSet::read(transport::ByteReader& reader, int size) {
  RankStatusSet statuses;
  const auto kinds = reader.number<uint32_t>();
  reader.require(kinds <= kMaxKinds, "too many statuses");
  for (uint32_t i = 0; i < kinds; ++i) {
    auto& kind = statuses.kinds_.emplace_back();
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
  return statuses;
}

}  // namespace torch::comms::monitor
