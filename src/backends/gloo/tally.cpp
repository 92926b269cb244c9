#include "backends/gloo/tally.hpp"

#include <torchcomms/types.hpp>

namespace torch::comms::gloo {

Tally::Row& Tally::row_of(int peer) {
  const auto index = static_cast<size_t>(peer);
  if (index >= rows_.size()) rows_.resize(index + 1);
  return rows_[index];
}

Tally::Row Tally::row(int peer) const {
  const auto index = static_cast<size_t>(peer);
  return index < rows_.size() ? rows_[index] : Row();
}

void Tally::post(bool sends, int peer) {
  const std::lock_guard lock(mutex_);
  if (peer == kAnySource)
    ++from_any_.posted;
  else if (sends)
    ++row_of(peer).sends.posted;
  else
    ++row_of(peer).receives.posted;
}

void Tally::end(bool sends, int peer, bool from_any) {
  const std::lock_guard lock(mutex_);
  if (from_any) ++from_any_.ended;
  if (peer < 0) return;
  auto& row = row_of(peer);
  if (from_any) ++row.matched;
  ++(sends ? row.sends : row.receives).ended;
}

monitor::PostedCounts Tally::posted(int peer) const {
  const std::lock_guard lock(mutex_);
  const auto row = this->row(peer);
  return {.sends = row.sends.posted,
          .receives = row.receives.posted + row.matched,
          .has_open_any_source = from_any_.posted > from_any_.ended ? uint64_t{1} : 0};
}

bool Tally::has_all_of(int peer, const monitor::PostedCounts& theirs) const {
  const std::lock_guard lock(mutex_);
  return row(peer).receives.ended >= theirs.sends;
}

bool Tally::is_full(int peer, const monitor::PostedCounts& theirs) const {
  const std::lock_guard lock(mutex_);
  return theirs.has_open_any_source == 0 && row(peer).sends.ended >= theirs.receives;
}

}  // namespace torch::comms::gloo
