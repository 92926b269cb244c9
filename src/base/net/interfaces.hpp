#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/os/host.hpp"

namespace torch::comms::base {

// The addresses that peers should try, best first, and the reason for the choice.
struct AddressChoice {
  std::vector<std::string> addresses;
  std::string reason;  // "eth0: up, and neither loopback nor a bridge"
};

// Chooses the addresses to publish. `wanted` is an interface name, an address, or "" for all
// interfaces that are up. With "", loopback, container bridges and link-local addresses are left
// out, and IPv4 comes before IPv6. Loopback is the choice if no other interface is usable. This is
// a pure function.
// Throws: CommError(kInvalidArgument) that lists the interfaces if none matches `wanted`.
TC_API AddressChoice choose_addresses(const std::vector<InterfaceAddress>& all,
                                      std::string_view wanted);

}  // namespace torch::comms::base
