#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torchcomms/options.hpp>

namespace gloo::transport {
class Device;
}

namespace torch::comms {
struct Rendezvous;
}

namespace torch::comms::gloo {

struct GlooCall;

// The devices on which Gloo listens, one per network interface.
using Devices = std::vector<std::shared_ptr<::gloo::transport::Device>>;

// Creates the devices for the first setting that is present: hint `hostname`, hint `interface`,
// TORCHCOMM_GLOO_HOSTNAME, TORCHCOMM_GLOO_INTERFACE, GLOO_SOCKET_IFNAME (torch's own). An interface
// setting may be a comma-separated list. Without a setting, a split uses `parent_devices`, which is
// otherwise empty. Without both, the address is 127.0.0.1 if all ranks share one loopback
// interface, and otherwise the address that routes to the store. No name resolution is needed.
//
// Collective: the ranks exchange their choices over the store.
// Throws: CommError: kInvalidArgument, without context, naming the value and the available
// interfaces; kResourceExhausted; kPeerFailed if another rank failed with one of these; kMismatch
// if only some ranks connect lazily.
Devices find_devices(const CommOptions& options, const Rendezvous& rendezvous,
                     const Devices& parent_devices, const GlooCall& call);

// Returns: the first interface of the setting, or "" if the setting names no interface.
std::string chosen_interface(const CommOptions& options);

// Returns: whether connections are made on first use: hint `lazy` is present, with any value, or
// torch's TORCH_GLOO_LAZY_INIT is set.
bool is_lazy_connect(const CommOptions& options);

}  // namespace torch::comms::gloo
