#pragma once

#include <cstdint>
#include <string>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "bootstrap/timeout.hpp"

namespace torch::comms {

// What it means if a host refuses a connection because nothing listens at the port.
enum class RefusedConnectPolicy {
  kRetry,  // the server may start later
  kFail,   // the server existed before and has ended
};

// Waits until a server accepts TCP connections at host:port. It retries until `deadline`, because
// the server may start later, and names may appear later.
// Throws: CommError with `context`, the address and the last reason (name unknown, refused, ...):
// kTimeout; kPeerFailed at once for a refusal with kFail. Interrupted.
void wait_until_reachable(const std::string& host, uint16_t port, bootstrap::Deadline deadline,
                          const Context& context,
                          RefusedConnectPolicy refusal = RefusedConnectPolicy::kRetry);

// Returns: true for texts of addresses in 127.0.0.0/8, and for ::1.
bool is_loopback(const std::string& address);

// Returns: true if `host` (a name or an address) is an address of this machine's interfaces.
bool is_own_address(const std::string& host);

// Returns: an address of this machine for peers on other hosts. It is `hint` itself if that is one,
// otherwise the source address of the route to `hint`, otherwise that of the default route,
// otherwise 127.0.0.1. It is never loopback if there is another.
TC_API std::string own_address(const std::string& hint);

}  // namespace torch::comms
