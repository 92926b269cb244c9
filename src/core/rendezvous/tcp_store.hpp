#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>

#include "bootstrap/timeout.hpp"
#include "core/rendezvous/tcp_probe.hpp"

namespace torch::comms {

// Returns: the name of a TCPStore in texts: tcp://host:port.
std::string tcp_url(const std::string& host, uint16_t port);

// A TCPStore that this process serves.
struct ServedStore {
  c10::intrusive_ptr<c10d::Store> store;  // the server ends with the last reference
  uint16_t port;
};

// Serves a TCPStore on all interfaces. With port 0 it is a server of its own on a free port.
// Otherwise the server is shared with all other sharing TCPStores of this process on that port.
// `timeout` becomes the store's own timeout, for calls without one.
// Throws: CommError with `context`: kResourceExhausted (the port is taken), kTimeout, kSystem.
ServedStore serve_store(uint16_t port, std::chrono::milliseconds timeout,
                        bootstrap::Deadline deadline, const Context& context);

// Connects to the TCPStore server at host:port, which may appear until `deadline`.
// Throws: CommError with `context`: kTimeout with the address and why it cannot be reached;
// kPeerFailed if the server is not a store, or for a refusal with RefusedConnectPolicy::kFail.
c10::intrusive_ptr<c10d::Store> join_store(
    const std::string& host, uint16_t port, std::chrono::milliseconds timeout,
    bootstrap::Deadline deadline, const Context& context,
    RefusedConnectPolicy refusal = RefusedConnectPolicy::kRetry);

}  // namespace torch::comms
