#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <torchcomms/base/export.hpp>

#include "transport/connect/peer_connection.hpp"

namespace torch::comms::transport {

// How many of 1,000 frames that a rank sends are dropped, duplicated, delayed or followed by a
// reset. A delay is counted in the rank's own progress() calls and never sleeps. Each peer has its
// own delay, so frames to different peers overtake each other.
struct FaultPlan {
  uint64_t seed = 1;
  int drop = 0;
  int duplicate = 0;
  int delay = 0;
  int reset = 0;  // frames at which the connection breaks
  int max_delay = 50;

  std::string describe() const;  // "seed 1: drop 0, ..., of 1000 frames"
};

// Returns a function for TransportOptions::wrap_connection that injects `plan` into connections of
// any transport. A plan does the same to the same frames of a (rank, peer) each time. The plan is
// logged, so that a failure can be repeated.
TC_API std::function<std::unique_ptr<PeerConnection>(int peer, std::unique_ptr<PeerConnection>)>
inject_faults(const FaultPlan& plan, int rank);

}  // namespace torch::comms::transport
