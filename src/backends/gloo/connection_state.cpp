#include "backends/gloo/connection_state.hpp"

#include <utility>

namespace torch::comms::gloo {

void ConnectionState::require_open(const GlooCall& call) const {
  if (!is_closed_.load()) return;
  std::lock_guard lock(mutex_);
  throw CommError(
      Errc::kPeerFailed,
      "Gloo closed the connections of this communicator when an earlier operation timed out (" +
          closed_by_ + "). Make a new communicator",
      context(call));
}

void ConnectionState::require_peer(const GlooCall& call, int peer) const {
  require_open(call);
  std::lock_guard lock(mutex_);
  if (abandoned_.empty()) return;
  const auto found = abandoned_.find(peer);
  if (found == abandoned_.end()) return;
  throw CommError(Errc::kPeerFailed,
                  "messages with this peer are disabled because an earlier operation timed out (" +
                      found->second +
                      "); messages with other peers still work. To exchange messages with this "
                      "peer again, make a new communicator",
                  context(call, peer));
}

bool ConnectionState::close(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (closed_by_.empty()) closed_by_ = why;
  return !is_closed_.exchange(true);
}

void ConnectionState::abandon_peer(int peer, const std::string& why) {
  std::lock_guard lock(mutex_);
  abandoned_.emplace(peer, why);
}

void ConnectionState::retain_unfinished(NativeWorkPtr unfinished) {
  std::lock_guard lock(mutex_);
  unfinished_.push_back(std::move(unfinished));
}

void ConnectionState::clear() {
  std::vector<NativeWorkPtr> unfinished;
  std::lock_guard lock(mutex_);
  unfinished.swap(unfinished_);
}

}  // namespace torch::comms::gloo
