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

// Where Gloo listens: one device a network interface.
using Devices = std::vector<std::shared_ptr<::gloo::transport::Device>>;

// The user's choice: what the first of these names: hint `hostname`, hint `interface`,
// TORCHCOMM_GLOO_HOSTNAME, TORCHCOMM_GLOO_INTERFACE, GLOO_SOCKET_IFNAME (torch's own). An interface
// may be a list with commas. Without one `of_parent`, empty of no split; without these 127.0.0.1
// where all ranks share one host's loopback, else the address that routes to where the ranks met.
// Needs no name resolution. Collective: the ranks tell each other over the store. Throws CommError:
// kInvalidArgument, without context, naming the value and the interfaces there are, and
// kResourceExhausted, which are kPeerFailed on the others; kSizeMismatch where some ranks alone
// connect lazily.
Devices find_devices(const CommOptions& options, const Rendezvous& met, const Devices& of_parent,
                     const GlooCall& call);

// The first interface of that choice, "" where it is none.
std::string chosen_interface(const CommOptions& options);

// Whether connections are made when they are first needed: hint `lazy`, whatever its text, else
// torch's TORCH_GLOO_LAZY_INIT.
bool is_lazy_connect(const CommOptions& options);

}  // namespace torch::comms::gloo
