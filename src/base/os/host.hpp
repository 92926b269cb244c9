#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

// Finds the addresses and the identity of this machine.
namespace torch::comms::base {

// Formats an IP address without its port and interface: "10.0.0.1" or "fe80::1"; empty for other
// address families.
TC_API std::string format_address(const sockaddr* address);

// An IP address of one of this machine's interfaces.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // "10.0.0.1", "fe80::1%eth0"
  bool is_loopback = false;
  bool is_up = false;
};

// Returns the IP addresses of all interfaces, also of loopback and of interfaces that are down, in
// the kernel's order; empty if the kernel does not list them.
TC_API std::vector<InterfaceAddress> interface_addresses();

// Returns gethostname(); "" if unknown.
TC_API std::string host_name();

// Returns the kernel's boot id; "" if /proc cannot be read. Processes with the same boot id run on
// one kernel, so they share its clocks and file locks.
TC_API std::string boot_identity();

// Returns a text of kernel boot id and network namespace. It is equal for two processes exactly if
// 127.0.0.1 is the same interface for both. The host name replaces the boot id or the namespace if
// it cannot be read.
TC_API std::string loopback_identity();

}  // namespace torch::comms::base
