#include "backends/gloo/message_counters.hpp"

#include <torchcomms/types.hpp>

namespace torch::comms::gloo {

GlooMessageCounters::PeerMessageCounts& GlooMessageCounters::mutable_counts_of(int peer) {
  const auto index = static_cast<size_t>(peer);
  if (index >= by_peer_.size()) by_peer_.resize(index + 1);
  return by_peer_[index];
}

GlooMessageCounters::PeerMessageCounts GlooMessageCounters::counts_of(int peer) const {
  const auto index = static_cast<size_t>(peer);
  return index < by_peer_.size() ? by_peer_[index] : PeerMessageCounts();
}

void GlooMessageCounters::post(bool sends, int peer) {
  const std::lock_guard lock(mutex_);
  if (peer == kAnySource)
    ++from_any_.posted;
  else if (sends)
    ++mutable_counts_of(peer).sends.posted;
  else
    ++mutable_counts_of(peer).receives.posted;
}

void GlooMessageCounters::end(bool sends, int peer, bool from_any) {
  const std::lock_guard lock(mutex_);
  if (from_any) ++from_any_.completed;
  if (peer < 0) return;
  auto& row = mutable_counts_of(peer);
  if (from_any) ++row.matched;
  ++(sends ? row.sends : row.receives).completed;
}

monitor::PostedCounts GlooMessageCounters::posted(int peer) const {
  const std::lock_guard lock(mutex_);
  const auto row = this->counts_of(peer);
  return {.sends = row.sends.posted,
          .receives = row.receives.posted + row.matched,
          .has_open_any_source = from_any_.posted > from_any_.completed ? uint64_t{1} : 0};
}

bool GlooMessageCounters::has_received_all_from(int peer,
                                                const monitor::PostedCounts& peer_counts) const {
  const std::lock_guard lock(mutex_);
  return counts_of(peer).receives.completed >= peer_counts.sends;
}

bool GlooMessageCounters::has_sent_all_to(int peer,
                                          const monitor::PostedCounts& peer_counts) const {
  const std::lock_guard lock(mutex_);
  return peer_counts.has_open_any_source == 0 &&
         counts_of(peer).sends.completed >= peer_counts.receives;
}

}  // namespace torch::comms::gloo
