#pragma once

#include <memory>
#include <string>

#include <torchcomms/backend.hpp>

namespace torch::comms {

// Creates a backend from the library that backend_library_variable(name) names. The library is
// opened once per name and never closed.
// Returns: nullptr if the variable is unset.
// Throws: CommError(kBackendUnavailable) with the path, the reason, and the versions found and
// needed.
std::shared_ptr<TorchCommBackend> load_backend_library(const std::string& name);

}  // namespace torch::comms
