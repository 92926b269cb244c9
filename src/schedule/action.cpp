#include "schedule/action.hpp"

namespace torch::comms::schedule {

void Step::clear() noexcept {
  transfers_.clear();
  local_.clear();
  frame_ = {};
}

Range Step::placed(Range range) const noexcept {
  const Range& at = frame_.at[static_cast<size_t>(range.buffer)];
  return {at.buffer, at.begin + range.begin, range.count};
}

void Step::send(int peer, Range from) {
  if (from.count == 0) return;
  transfers_.push_back({.verb = Verb::kSend, .peer = peer_of(peer), .from = placed(from)});
}

void Step::receive(int peer, Range into) {
  if (into.count == 0) return;
  transfers_.push_back({.verb = Verb::kReceive, .peer = peer_of(peer), .into = placed(into)});
}

void Step::receive_reduce(int peer, Range from, Range into, First first) {
  if (into.count == 0) return;
  transfers_.push_back({.verb = Verb::kReceiveReduce,
                        .first = first,
                        .peer = peer_of(peer),
                        .from = placed(from),
                        .into = placed(into)});
}

void Step::signal(int peer) {
  transfers_.push_back({.verb = Verb::kSignal, .peer = peer_of(peer)});
}

void Step::wait(int peer) { transfers_.push_back({.verb = Verb::kWait, .peer = peer_of(peer)}); }

void Step::copy(Range from, Range into) {
  if (into.count == 0 || placed(from) == placed(into)) return;
  local_.push_back({.verb = Verb::kCopy, .from = placed(from), .into = placed(into)});
}

void Step::reduce(Range from, Range other, Range into) {
  if (into.count == 0) return;
  local_.push_back(
      {.verb = Verb::kReduce, .from = placed(from), .other = placed(other), .into = placed(into)});
}

}  // namespace torch::comms::schedule
