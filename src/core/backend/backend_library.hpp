#pragma once

#include <memory>
#include <string>

#include <torchcomms/backend.hpp>

namespace torch::comms {

// A new backend from the library that backend_library_variable(name) names; nullptr where the
// variable is unset. The library is opened once per name and never closed. Throws
// CommError(kBackendUnavailable) naming path, reason, and the versions found and needed.
std::shared_ptr<TorchCommBackend> load_backend_library(const std::string& name);

}  // namespace torch::comms
