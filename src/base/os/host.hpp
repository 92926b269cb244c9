#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

// What this machine is on the network.
namespace torch::comms::base {

// "10.0.0.1" or "fe80::1"; empty for a family that is not IP.
TC_API std::string format_address(const sockaddr* address);

// An IP address of this machine, as its interfaces tell.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.0.0.1", "fe80::1%eth0"
  bool is_loopback = false;
  bool is_up = false;
};

// In the kernel's order. Empty where it does not say.
TC_API std::vector<InterfaceAddress> interface_addresses();

// Of this machine as it calls itself; "" where it does not say.
TC_API std::string host_name();

// Names the running kernel: its clocks and file locks are the same for all who get the same text.
TC_API std::string boot_identity();

// Equal for two processes exactly if 127.0.0.1 means the same to both: kernel boot and network
// namespace.
TC_API std::string loopback_identity();

}  // namespace torch::comms::base
