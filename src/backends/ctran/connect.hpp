#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/backend.hpp>

#include "backends/ctran/selection_inputs.hpp"
#include "core/rendezvous/rendezvous.hpp"

namespace torch::comms::ctran {

// What a start-up connects, and every split of it shares.
struct ConnectedLinks {
  std::shared_ptr<LinkContext> link_context;
  std::shared_ptr<const SelectionInputs> selection_inputs;
  // Set when reconfigure() ends the links, under all splits.
  std::shared_ptr<std::atomic<bool>> is_superseded = std::make_shared<std::atomic<bool>>(false);
};

// Connects the ranks that met: rank 0 puts the job's secret, its tuning file and its GPU, `gpu`
// (see Told), into the store, and they tell each other where they are: three store operations a
// rank, O(log size) messages between them. Returns before all have read: a barrier of the first
// group must follow before the store goes. Collective. Adds its phases. Throws CommError, without
// context, at most half a second after what is left of the start-up's limit; Interrupted.
ConnectedLinks connect_links(const Rendezvous& met, const CommOptions& options,
                             const std::string& gpu,
                             std::vector<TorchCommBackend::InitPhase>& phases);

}  // namespace torch::comms::ctran
