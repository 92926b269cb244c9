#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "base/os/host.hpp"

namespace torch::comms::base {

// Addresses that peers are to try, best first, and why these.
struct AddressChoice {
  std::vector<std::string> addresses;
  std::string reason;  // "eth0: first interface that is up and not loopback"
};

// `wanted` is an interface's name, an address, or "" for: whatever is up, not loopback, not the
// bridge of containers, not link-local, IPv4 before IPv6; loopback if there is nothing else. Pure.
// Throws CommError(kInvalidArgument) naming what there is, if nothing is as wanted.
TC_API AddressChoice choose_addresses(const std::vector<InterfaceAddress>& all,
                                      std::string_view wanted);

}  // namespace torch::comms::base
