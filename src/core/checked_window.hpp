#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include <torchcomms/window.hpp>

#include "core/validate.hpp"

namespace torch::comms {

// What a window asks of its communicator before every operation: throws where that cannot be used
// any more, else says what arguments are checked against. Keeps the communicator alive.
using WindowGuard = std::function<CommFacts(std::string_view method)>;

// The window that a communicator gives out for a backend's: the checks that hold for all backends,
// then the backend's own. `registered`: it has memory already.
std::shared_ptr<TorchCommWindow> checked_window(std::shared_ptr<TorchCommWindow> inner,
                                                WindowGuard guard, bool registered);

}  // namespace torch::comms
