#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace torch::comms::transport {

// Makes the transport of a rank with itself. The caller connects it to its own endpoint.
// Throws: CommError(kInvalidArgument) for a rank outside of the communicator; kResourceExhausted if
// no descriptor is left.
TC_API std::unique_ptr<Transport> make_self_transport(const TransportOptions& options);

}  // namespace torch::comms::transport
