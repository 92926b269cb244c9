#pragma once

#include <memory>

#include "transport/shm/frame_ring.hpp"
#include "transport/transport.hpp"

namespace torch::comms::transport::shm {

// Options of the shm transport.
struct ShmOptions : TransportOptions {
  // bulk_bytes 0: 512 KiB in each direction. More than 129 ranks on a host get less, but at least
  // 64 KiB. So the rings of up to 1,025 ranks take at most 64 MiB a rank in each direction. Equal
  // on all ranks.
  RingShape ring = {.cells = 256, .bulk_bytes = 0, .chunk_bytes = 0};
  // Large messages, and put and get of registered memory, use CMA where it is allowed.
  bool single_copy = true;
};

// Makes the transport between ranks of one host, through shared memory. A pair of ranks shares one
// segment without a name. The smaller rank makes it and passes it over a Unix socket. The socket
// wakes sleepers, and its end shows at once that a peer has died. Nothing stays on the host after
// the processes end.
//
// A rank retries while the peer's queue of connections is full. It retries for about a second if
// the peer closes the connection, as a peer without a free descriptor does; then the peer counts as
// failed. Frames that were sent meanwhile are kept.
//
// If a process has a SharedArena before its transport is made, its peers map the arena's memory.
//
// A sleeper waits on the sockets and not on a futex: waking costs the same, and one poll() also
// sees deaths, aborts and other transports.
//
// A rank that has no memory for a segment, or cannot map the peer's segment, reports that to the
// peer. Both ranks see the other one fail with kResourceExhausted and the reason.
//
// Throws: CommError: kInvalidArgument, kResourceExhausted (descriptors, memory), kSystem.
TC_API std::unique_ptr<Transport> make_shm_transport(ShmOptions options);

// Checks whether this process can make a segment, so that a rank can report that before its peers
// choose this transport.
// Throws: CommError(kResourceExhausted).
TC_API void require_segment_memory(ShmOptions options);

// Returns: the number of connections so far that were not a rank of this job.
TC_API uint64_t rejected_connections(const Transport& shm);

}  // namespace torch::comms::transport::shm
