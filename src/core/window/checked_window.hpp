#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <torchcomms/window.hpp>

#include "core/comm/active_calls.hpp"
#include "core/comm/validate.hpp"
#include "core/work/unobserved_failure.hpp"

namespace torch::comms {

// What a window uses of its communicator, which it keeps alive.
struct WindowGuard {
  // Runs before every operation: it throws if the communicator is not usable, and otherwise returns
  // the facts for the argument checks.
  std::function<CommFacts(std::string_view method)> require_usable;
  // A method of the window counts as a call of the communicator.
  ActiveCalls& active_calls;
  // The guard of the communicator; null if failures need not be observed.
  std::shared_ptr<UnobservedFailureGuard> failure_guard;
};

// Returns: the window that a communicator gives to the program. It applies the checks of all
// backends, then calls the backend's window. `registered`: the window has memory already.
std::shared_ptr<TorchCommWindow> checked_window(std::shared_ptr<TorchCommWindow> inner,
                                                WindowGuard guard, bool registered);

}  // namespace torch::comms
