#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <torchcomms/base/export.hpp>

#include "transport/connect/peer_connection.hpp"

namespace torch::comms::transport {

// What is to go wrong with the frames that a rank sends; of 1,000 frames each. Delays are counted
// in the rank's own progress_engine() calls and never sleep; each peer has its own, so frames to
// different peers overtake each other.
struct FaultPlan {
  uint64_t seed = 1;
  int drop = 0;
  int duplicate = 0;
  int delay = 0;
  int reset = 0;  // the connection breaks
  int max_delay = 50;

  std::string describe() const;  // "seed 1: drop 0, ..., of 1000 frames"
};

// For TransportOptions::wrap, around the channels of any link. A plan does the same to the same
// frames of a (rank, peer) each time. Logs the plan, so that a failure can be repeated.
TC_API std::function<std::unique_ptr<PeerConnection>(int peer, std::unique_ptr<PeerConnection>)>
inject_faults(const FaultPlan& plan, int rank);

}  // namespace torch::comms::transport
