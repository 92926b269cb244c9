#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <torchcomms/window.hpp>

#include "core/comm/active_calls.hpp"
#include "core/comm/validate.hpp"
#include "core/work/unobserved_failure.hpp"

namespace torch::comms {

// What a window asks of its communicator, which it keeps alive.
struct WindowGuard {
  // Before every operation: throws where the communicator cannot be used any more, else says what
  // arguments are checked against.
  std::function<CommFacts(std::string_view method)> require_usable;
  // Who is in a method of the window is in a call of the communicator.
  ActiveCalls& active_calls;
  // Whether the program has met a failure of that communicator; null where none has to be met.
  std::shared_ptr<UnobservedFailureGuard> failure_guard;
};

// The window that a communicator gives out for a backend's: the checks that hold for all backends,
// then the backend's own. `registered`: it has memory already.
std::shared_ptr<TorchCommWindow> checked_window(std::shared_ptr<TorchCommWindow> inner,
                                                WindowGuard guard, bool registered);

}  // namespace torch::comms
