#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torchcomms/base/error.hpp>

#include "bootstrap/timeout.hpp"
#include "core/rendezvous/tcp_probe.hpp"

namespace torch::comms {

// Returns how texts name a TCPStore: tcp://host:port.
std::string tcp_url(const std::string& host, uint16_t port);

struct ServedStore {
  c10::intrusive_ptr<c10d::Store> store;  // the server ends with the last reference
  uint16_t port;
};

// A TCPStore served by this process on all interfaces. Port 0: a free one, and a server of its own;
// else the server is shared with every other sharing TCPStore of this process on that port.
// `timeout` becomes the store's own, for calls without one.
// Throws CommError with `context`: kResourceExhausted (the port is taken), kTimeout, kSystem.
ServedStore serve_store(uint16_t port, std::chrono::milliseconds timeout,
                        bootstrap::Deadline deadline, const Context& context);

// A TCPStore whose server is at host:port, now or before `deadline`.
// Throws CommError with `context`: kTimeout naming the address and why it cannot be reached,
// kPeerFailed if what answers there is not a store, or for a refusal that ends.
c10::intrusive_ptr<c10d::Store> join_store(
    const std::string& host, uint16_t port, std::chrono::milliseconds timeout,
    bootstrap::Deadline deadline, const Context& context,
    RefusedConnectPolicy refusal = RefusedConnectPolicy::kRetry);

}  // namespace torch::comms
