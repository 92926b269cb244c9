#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace torch::comms::transport::tcp {

struct TcpOptions : TransportOptions {
  std::string interface = {};  // name or address; "": chosen, see interfaces.hpp
  uint16_t port = 0;           // 0: a free one
  unsigned sockets = 3;        // a connection: one for small frames, the others for chunks; 1..8
  uint32_t chunk_bytes = 256 * 1024;
  // A peer's machine that says nothing for so long, once it is connected, has failed; 0: never. A
  // peer's process that ends is seen at once; one that stands still may do so for as long as calls
  // may take. Of the peer's addresses each is tried for 3.5 s, four times.
  std::chrono::milliseconds keepalive_timeout{30'000};
};

// The link between hosts, over IPv4 or IPv6. The smaller rank of a pair connects to the one port
// that the other listens on. Whoever does not know the job's secret is dropped and counted; at most
// 256 connections that have not said who they are are kept, 48 bytes each.
//
// Throws CommError: kInvalidArgument (interface, options), kResourceExhausted, kSystem.
TC_API std::unique_ptr<Transport> make_tcp_transport(TcpOptions options);

// Connections that were no rank of this job, so far.
TC_API uint64_t rejected_connections(const Transport& tcp);

}  // namespace torch::comms::transport::tcp
