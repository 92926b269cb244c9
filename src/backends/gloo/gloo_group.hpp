#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <torchcomms/backend.hpp>

#include "backends/common/collective_log.hpp"
#include "backends/common/peer_monitor.hpp"
#include "backends/gloo/connection_state.hpp"
#include "backends/gloo/gloo_device.hpp"
#include "backends/gloo/message_counters.hpp"
#include "backends/gloo/message_waiter.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "core/rendezvous/rendezvous.hpp"
#include "core/work/inflight_counter.hpp"

namespace torch::comms::gloo {

// How long after a rank's failure it may take to finish what that did before; Gloo tells those it
// was connected with at once.
inline constexpr std::chrono::milliseconds kFailureGrace{400};
// How long after Gloo's own error it may take until it is known who has failed.
inline constexpr std::chrono::milliseconds kFailureLookupTimeout{300};

// A connected process group of torch's, and what its operations in flight share. Works never own
// it.
struct GlooGroup {
  NativePtr native;
  Devices devices;
  std::shared_ptr<GlooThreads> threads;
  std::shared_ptr<InFlightCounter> in_flight = std::make_shared<InFlightCounter>();
  std::shared_ptr<ConnectionState> connections = std::make_shared<ConnectionState>();
  std::shared_ptr<GlooMessageCounters> message_counters = std::make_shared<GlooMessageCounters>();
  // Beside Gloo's connections. No circle and no record: one rank, or hint side_channel=false.
  std::shared_ptr<common::CollectiveLog> collective_log;
  std::shared_ptr<monitor::GroupMonitor> group_monitor;
  bool is_close_announced = false;  // see announce_close()
  std::shared_ptr<common::PeerMonitor> peer_monitor =
      std::make_shared<common::PeerMonitor>(nullptr, nullptr);

  // Joins Gloo's threads. With operations in flight it blocks until they end: see teardown_group().
  ~GlooGroup();
};

// Of whom a group is a split: it shares threads, devices and the side channel with that.
struct SplitParent {
  const GlooGroup* group = nullptr;  // nullptr: it is none
  std::vector<int> ranks = {};       // of the parent
};

// Connects the ranks that met. Collective. Adds its time to `phases`. Throws CommError within what
// is left of the start-up's limit.
std::unique_ptr<GlooGroup> connect_group(const CommOptions& options, const GlooCall& call,
                                         const Rendezvous& met, const SplitParent& origin,
                                         std::vector<TorchCommBackend::InitPhase>& phases);

// This rank calls nothing more: tells the other ranks so, and what may still come from it, where a
// call is in flight that may wait for one of theirs.
void announce_close(GlooGroup& group, int size);

// Ends a group: see core/work/deferred_teardown.hpp.
void teardown_group(std::unique_ptr<GlooGroup> group, bool may_block);

}  // namespace torch::comms::gloo
