#pragma once

#include <memory>

#include <torchcomms/backend.hpp>

#include "backends/ctran/known.hpp"
#include "core/rendezvous.hpp"

namespace torch::comms::ctran {

// What a start-up connects, and every split of it shares.
struct Connected {
  std::shared_ptr<Family> family;
  std::shared_ptr<const Known> known;
};

// Connects the ranks that met: they tell each other over the store where they are, rank 0 gives the
// job's secret and its tuning file. Returns before all have read: a barrier of the first group must
// follow before the store goes. Collective. Adds its phases. Throws CommError, without context, at
// most half a second after what is left of the start-up's limit; Interrupted.
Connected connect(const Rendezvous& met, const CommOptions& options,
                  std::vector<TorchCommBackend::InitPhase>& phases);

}  // namespace torch::comms::ctran
