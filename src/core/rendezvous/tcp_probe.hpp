#pragma once

#include <cstdint>
#include <string>

#include <torchcomms/base/error.hpp>
#include <torchcomms/base/export.hpp>

#include "bootstrap/timeout.hpp"

namespace torch::comms {

// What a host means that answers that nothing listens at the port.
enum class RefusedConnectPolicy {
  kRetry,  // the server may start later
  kFail,   // the server was there before: it has ended
};

// Returns when something accepts TCP connections at host:port; tries again and again until
// `deadline`, since the other side may start later, and names may appear later.
// Throws: CommError with `context`, naming the address and the last reason (name unknown, refused,
// ...): kTimeout; kPeerFailed at once for a refusal that ends. Interrupted.
void wait_until_reachable(const std::string& host, uint16_t port, bootstrap::Deadline deadline,
                          const Context& context,
                          RefusedConnectPolicy refusal = RefusedConnectPolicy::kRetry);

// True for 127.0.0.0/8 and ::1, as text.
bool is_loopback(const std::string& address);

// True if `host` (a name or an address) is this machine, as far as its own interfaces tell.
bool is_own_address(const std::string& host);

// An address of this machine for peers on other hosts: `hint` itself if it is one, else the address
// of the route to `hint`, else that of the default route, else 127.0.0.1. Never loopback if there
// is another.
TC_API std::string own_address(const std::string& hint);

}  // namespace torch::comms
