#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "transport/transport.hpp"

namespace torch::comms::transport::tcp {

// Options of the TCP transport.
struct TcpOptions : TransportOptions {
  std::string interface = {};  // name or address; "": chosen, see base/net/interfaces.hpp
  uint16_t port = 0;           // 0: a free port
  // Sockets of a connection: one for small frames, the others for chunks; 1 to 8.
  unsigned sockets = 3;
  uint32_t chunk_bytes = 256 * 1024;
  // A connected peer fails if its machine does not acknowledge for this long; 0: never. The end of
  // a peer's process is seen at once. A process that is merely stopped does not fail; only the
  // timeouts of calls bound it. While connecting, each address of the peer is tried for 3.5 s, four
  // times.
  std::chrono::milliseconds keepalive_timeout{30'000};
};

// Makes the transport between hosts, over IPv4 or IPv6. The smaller rank of a pair connects to the
// port on which the other rank listens. A connection without the job's secret is closed and
// counted. At most 256 connections that have not identified themselves are kept, 48 bytes each.
//
// Throws: CommError: kInvalidArgument (interface, options), kResourceExhausted, kSystem.
TC_API std::unique_ptr<Transport> make_tcp_transport(TcpOptions options);

// Returns: the number of connections so far that were not a rank of this job.
TC_API uint64_t rejected_connections(const Transport& tcp);

}  // namespace torch::comms::transport::tcp
