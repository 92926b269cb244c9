#include "schedule/action.hpp"

namespace torch::comms::schedule {

void Step::clear() noexcept {
  transfers_.clear();
  local_.clear();
  mapping_ = {};
}

Range Step::map_range(Range range) const noexcept {
  const Range& at = mapping_.at[static_cast<size_t>(range.buffer)];
  return {at.buffer, at.begin + range.begin, range.count};
}

void Step::send(int peer, Range from) {
  if (from.count == 0) return;
  transfers_.push_back(
      {.kind = ActionKind::kSend, .peer = map_peer(peer), .from = map_range(from)});
}

void Step::receive(int peer, Range into) {
  if (into.count == 0) return;
  transfers_.push_back(
      {.kind = ActionKind::kReceive, .peer = map_peer(peer), .into = map_range(into)});
}

void Step::receive_reduce(int peer, Range from, Range into, LeftOperand first) {
  if (into.count == 0) return;
  transfers_.push_back({.kind = ActionKind::kReceiveReduce,
                        .left_operand = first,
                        .peer = map_peer(peer),
                        .from = map_range(from),
                        .into = map_range(into)});
}

void Step::signal(int peer) {
  transfers_.push_back({.kind = ActionKind::kSignal, .peer = map_peer(peer)});
}

void Step::wait(int peer) {
  transfers_.push_back({.kind = ActionKind::kWait, .peer = map_peer(peer)});
}

void Step::copy(Range from, Range into) {
  if (into.count == 0 || map_range(from) == map_range(into)) return;
  local_.push_back({.kind = ActionKind::kCopy, .from = map_range(from), .into = map_range(into)});
}

void Step::reduce(Range from, Range other, Range into) {
  if (into.count == 0) return;
  local_.push_back({.kind = ActionKind::kReduce,
                    .from = map_range(from),
                    .other = map_range(other),
                    .into = map_range(into)});
}

}  // namespace torch::comms::schedule
