#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <torchcomms/backend.hpp>

#include "backends/beside/collective_log.hpp"
#include "backends/beside/peer_monitor.hpp"
#include "backends/gloo/attendant.hpp"
#include "backends/gloo/device.hpp"
#include "backends/gloo/peers.hpp"
#include "backends/gloo/tally.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "core/inflight_counter.hpp"
#include "core/rendezvous.hpp"

namespace torch::comms::gloo {

// How long after a rank's failure it may take to finish what that did before; Gloo tells those it
// was connected with at once.
inline constexpr std::chrono::milliseconds kPatience{400};
// How long after Gloo's own error it may take until it is known who has failed.
inline constexpr std::chrono::milliseconds kNaming{300};

// A connected process group of torch's, and what its operations in flight share. Works never own
// it.
struct Group {
  NativePtr native;
  Devices devices;
  std::shared_ptr<Services> services;
  std::shared_ptr<InFlightCounter> flight = std::make_shared<InFlightCounter>();
  std::shared_ptr<Peers> peers = std::make_shared<Peers>();
  std::shared_ptr<Tally> tally = std::make_shared<Tally>();
  // Beside Gloo's connections. No circle and no record: one rank, or hint side_channel=false.
  std::shared_ptr<common::CollectiveLog> record;
  std::shared_ptr<monitor::GroupMonitor> circle;
  bool has_departed = false;  // see depart()
  std::shared_ptr<common::PeerMonitor> others =
      std::make_shared<common::PeerMonitor>(nullptr, nullptr);

  // Joins Gloo's threads. With operations in flight it blocks until they end: see teardown_async().
  ~Group();
};

// Of whom a group is a split: it shares threads, devices and the side channel with that.
struct Origin {
  const Group* parent = nullptr;  // nullptr: it is none
  std::vector<int> ranks = {};    // of the parent
};

// Connects the ranks that met. Collective. Adds its time to `phases`. Throws CommError within what
// is left of the start-up's limit.
std::unique_ptr<Group> connect(const CommOptions& options, const Call& call, const Rendezvous& met,
                               const Origin& origin,
                               std::vector<TorchCommBackend::InitPhase>& phases);

// This rank calls nothing more: tells the other ranks so, and what may still come from it, where a
// call is in flight that may wait for one of theirs.
void depart(Group& group, int size);

// Ends a group: see core/deferred_teardown.hpp.
void retire(std::unique_ptr<Group> group, bool may_block);

}  // namespace torch::comms::gloo
