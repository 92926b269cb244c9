#pragma once

#include <memory>

#include "transport/transport.hpp"

namespace torch::comms::transport {

// The link of a rank with itself: `connect` it to its own endpoint. Throws CommError for a rank
// that cannot be, or without a descriptor left.
TC_API std::unique_ptr<Transport> make_self_transport(const TransportOptions& options);

}  // namespace torch::comms::transport
