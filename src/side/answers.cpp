#include "side/answers.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace torch::comms::side {
namespace {

static_assert(std::has_unique_object_representations_v<Answer>);

// Of a state that is no place.
const char* words(Answer::State state) noexcept {
  switch (state) {
    case Answer::State::kClosed:
      return "it has closed the communicator";
    case Answer::State::kLost:
      return "its process or its link has ended";
    default:
      return "elsewhere";
  }
}

}  // namespace

bool operator==(const Answer& a, const Answer& b) noexcept {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

Answers::Kind& Answers::kind_of(const Answer& answer) {
  const auto found =
      std::ranges::find_if(kinds_, [&](auto& kind) { return kind.answer == answer; });
  if (found != kinds_.end()) return *found;
  if (kinds_.size() + 1 < kMostKinds || answer.state == Answer::State::kElsewhere)
    return kinds_.emplace_back(Kind{answer, {}});
  return kind_of({.state = Answer::State::kElsewhere});
}

void Answers::join(std::vector<Range>& into, const std::vector<Range>& more) {
  into.insert(into.end(), more.begin(), more.end());
  std::ranges::sort(into, {}, &Range::first);
  size_t last = 0;
  for (size_t i = 1; i < into.size(); ++i) {
    if (into[i].first <= into[last].last + 1)
      into[last].last = std::max(into[last].last, into[i].last);
    else
      into[++last] = into[i];
  }
  into.resize(last + 1);
}

void Answers::add(int rank, const Answer& answer) { join(kind_of(answer).ranks, {{rank, rank}}); }

void Answers::merge(const Answers& others) {
  for (const auto& kind : others.kinds_) join(kind_of(kind.answer).ranks, kind.ranks);
}

template <class Body>
void Answers::for_each(const Body& body) const {
  for (const auto& kind : kinds_)
    for (const auto& range : kind.ranks)
      for (int rank = range.first; rank <= range.last; ++rank) body(rank, kind.answer);
}

Sighting Answers::sighting(int size, uint64_t number, std::chrono::milliseconds waited) const {
  Sighting seen{.size = size, .number = number, .waited = waited};
  for_each([&](int rank, const Answer& answer) {
    if (answer.state == Answer::State::kHere)
      seen.places[rank] = answer.place;
    else
      seen.gone[rank] = words(answer.state);
    if (answer.state == Answer::State::kClosed) seen.closed.push_back(rank);
  });
  for (const auto& [rank, place] : seen.places) seen.gone.erase(rank);
  std::erase_if(seen.closed, [&](int rank) { return !seen.gone.contains(rank); });
  return seen;
}

std::unordered_map<int, Fingerprint> Answers::prints(uint64_t number) const {
  std::unordered_map<int, Fingerprint> prints;
  for_each([&](int rank, const Answer& answer) {
    for (const auto& print : answer.prints)
      if (number != 0 && print.sequence == number) prints[rank] = print;
  });
  return prints;
}

void Answers::write(transport::ByteWriter& writer) const {
  writer.add(static_cast<uint32_t>(kinds_.size()));
  for (const auto& kind : kinds_) {
    writer.add(kind.answer).add(static_cast<uint32_t>(kind.ranks.size()));
    for (const auto& range : kind.ranks) writer.add(range);
  }
}

Answers Answers::read(transport::ByteReader& reader, int size) {
  Answers answers;
  const auto kinds = reader.number<uint32_t>();
  reader.require(kinds <= kMostKinds, "too many answers");
  for (uint32_t i = 0; i < kinds; ++i) {
    auto& kind = answers.kinds_.emplace_back();
    kind.answer = reader.number<Answer>();
    reader.require(kind.answer.state <= Answer::State::kElsewhere, "unknown state");
    const auto ranges = reader.number<uint32_t>();
    int32_t next = 0;
    for (uint32_t r = 0; r < ranges; ++r) {
      const auto range = reader.number<Range>();
      reader.require(range.first >= next && range.last >= range.first && range.last < size,
                     "ranks that cannot be");
      next = range.last + 1;
      kind.ranks.push_back(range);
    }
    reader.require(!kind.ranks.empty(), "an answer of nobody");
  }
  return answers;
}

}  // namespace torch::comms::side
