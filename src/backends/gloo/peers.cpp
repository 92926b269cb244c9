#include "backends/gloo/peers.hpp"

#include <utility>

namespace torch::comms::gloo {

void Peers::require_open(const Call& call) const {
  if (!closed_.load()) return;
  std::lock_guard lock(mutex_);
  throw CommError(
      Errc::kPeerFailed,
      "Gloo closed the connections of this communicator when an earlier operation timed out (" +
          closed_by_ + "); make a new communicator",
      context(call));
}

void Peers::require(const Call& call, int peer) const {
  require_open(call);
  std::lock_guard lock(mutex_);
  if (given_up_.empty()) return;
  const auto found = given_up_.find(peer);
  if (found == given_up_.end()) return;
  throw CommError(
      Errc::kPeerFailed,
      "messages with this peer ended when an earlier operation timed out (" + found->second +
          "); messages with other peers still work. Make a new communicator to reach it again",
      context(call, peer));
}

bool Peers::close(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (closed_by_.empty()) closed_by_ = why;
  return !closed_.exchange(true);
}

void Peers::give_up(int peer, const std::string& why) {
  std::lock_guard lock(mutex_);
  given_up_.emplace(peer, why);
}

void Peers::keep(NativeWorkPtr unfinished) {
  std::lock_guard lock(mutex_);
  unfinished_.push_back(std::move(unfinished));
}

void Peers::clear() {
  std::vector<NativeWorkPtr> unfinished;
  std::lock_guard lock(mutex_);
  unfinished.swap(unfinished_);
}

}  // namespace torch::comms::gloo
