#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <torchcomms/backend.hpp>

#include "backends/ctran/selection_inputs.hpp"
#include "core/rendezvous/rendezvous.hpp"

namespace torch::comms::ctran {

// The links that a start-up connects. All splits of the communicator share them.
struct ConnectedLinks {
  std::shared_ptr<LinkContext> link_context;
  std::shared_ptr<const SelectionInputs> selection_inputs;
  // True after reconfigure() has closed the links, for all splits.
  std::shared_ptr<std::atomic<bool>> is_superseded = std::make_shared<std::atomic<bool>>(false);
};

// Connects the members of `rendezvous`. Rank 0 puts the job's secret, its tuning file and the model
// of its GPU, `gpu` (see SharedTuning), into the store. The ranks then exchange their addresses:
// three store operations per rank, and O(log size) messages between ranks. Peers may still read the
// store when this returns, so a barrier of the first group must follow before the store is closed.
// Collective. Adds the phases to `phases`.
// Throws: CommError, without context, at most half a second after the start-up deadline;
// Interrupted.
ConnectedLinks connect_links(const Rendezvous& rendezvous, const CommOptions& options,
                             const std::string& gpu,
                             std::vector<TorchCommBackend::InitPhase>& phases);

}  // namespace torch::comms::ctran
