#pragma once

#include <memory>

#include <torchcomms/backend.hpp>

#include "backends/gloo/attendant.hpp"
#include "backends/gloo/device.hpp"
#include "backends/gloo/peers.hpp"
#include "backends/gloo/torch_compat.hpp"
#include "core/flight.hpp"
#include "core/rendezvous.hpp"

namespace torch::comms::gloo {

// A connected process group of torch's, and what its operations in flight share. Works never own
// it.
struct Group {
  NativePtr native;
  Devices devices;
  std::shared_ptr<Services> services;
  std::shared_ptr<Flight> flight = std::make_shared<Flight>();
  std::shared_ptr<Peers> peers = std::make_shared<Peers>();

  // Joins Gloo's threads. With operations in flight it blocks until they end: see retire().
  ~Group();
};

// Connects the ranks that met. Collective. `parent`: a split, which shares threads and devices with
// it. Adds its time to `phases`. Throws CommError within what is left of the start-up's limit.
std::unique_ptr<Group> connect(const CommOptions& options, const Call& call, const Rendezvous& met,
                               const Group* parent,
                               std::vector<TorchCommBackend::InitPhase>& phases);

// Ends a group: see core/retire.hpp.
void retire(std::unique_ptr<Group> group, bool may_block);

}  // namespace torch::comms::gloo
