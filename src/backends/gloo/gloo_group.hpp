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

// After a rank has failed, operations on other ranks may still complete within this time with data
// that the rank sent before. Gloo reports the failure at once to ranks that are connected with it.
inline constexpr std::chrono::milliseconds kFailureGrace{400};
// After an error of Gloo, how long a rank waits until the monitor reports which rank has failed.
inline constexpr std::chrono::milliseconds kFailureLookupTimeout{300};

// A connected Gloo process group of torch, and the state that its operations in flight share.
// Lifetime: works never own a group.
struct GlooGroup {
  NativePtr native;
  Devices devices;
  std::shared_ptr<MessageWaiter> message_waiter;
  std::shared_ptr<InFlightCounter> in_flight = std::make_shared<InFlightCounter>();
  std::shared_ptr<ConnectionState> connections = std::make_shared<ConnectionState>();
  std::shared_ptr<GlooMessageCounters> message_counters = std::make_shared<GlooMessageCounters>();
  // The monitor, which uses connections of its own. Both pointers are null with one rank or hint
  // side_channel=false.
  std::shared_ptr<common::CollectiveLog> collective_log;
  std::shared_ptr<monitor::GroupMonitor> group_monitor;
  bool is_close_announced = false;  // see announce_close()
  std::shared_ptr<common::PeerMonitor> peer_monitor =
      std::make_shared<common::PeerMonitor>(nullptr, nullptr);

  // Joins Gloo's threads. Blocks: until operations in flight have completed; see teardown_group().
  ~GlooGroup();
};

// The group that a new group is a split of. A split shares the message waiter, devices and the
// monitor network with its parent.
struct SplitParent {
  const GlooGroup* group = nullptr;  // nullptr: the new group is not a split
  std::vector<int> ranks = {};       // of the members, in the parent
};

// Connects the members of `rendezvous`, and adds the duration of each phase to `phases`.
// Collective.
// Throws: CommError, within the remaining time of the start-up timeout.
std::unique_ptr<GlooGroup> connect_group(const CommOptions& options, const GlooCall& call,
                                         const Rendezvous& rendezvous, const SplitParent& origin,
                                         std::vector<TorchCommBackend::InitPhase>& phases);

// Announces to the peer ranks that this rank issues no more calls, and which of its messages may
// still arrive. Peers with a call in flight use this to decide whether their call can still
// complete.
void announce_close(GlooGroup& group, int size);

// Destroys the group when nothing is in flight any more. See core/work/deferred_teardown.hpp for
// `may_block`.
void teardown_group(std::unique_ptr<GlooGroup> group, bool may_block);

}  // namespace torch::comms::gloo
