#pragma once

#include <memory>

#include "transport/shm/frame_ring.hpp"
#include "transport/transport.hpp"

namespace torch::comms::transport::shm {

struct ShmOptions : TransportOptions {
  // bulk_bytes 0: 512 KiB in each direction, less where more than 64 ranks share the host, so that
  // a rank's rings stay within 64 MiB. Equal on all ranks.
  RingShape ring = {.cells = 256, .bulk_bytes = 0, .chunk_bytes = 0};
  // Large messages, and put and get of registered memory, by the kernel's copy between processes,
  // where it is allowed.
  bool single_copy = true;
};

// The link between ranks of one host, through shared memory. A pair of ranks shares one segment
// without a name, made by the smaller rank and passed over a Unix socket; that socket wakes
// sleepers, and its end is how a peer's death is seen at once. Nothing survives the processes.
//
// A rank whose queue of callers is full is called again until it has room, and one that turns them
// away, as it does without a descriptor, for a second: then it counts as failed. What was sent
// meanwhile is kept.
//
// A process with an SharedArena before its link is made has the memory in it mapped by its peers.
//
// A sleeper waits on the sockets and not on a futex: waking costs the same, and one poll() also
// sees deaths, aborts and other links.
//
// A rank that has no memory for a segment, or cannot map that of its peer, tells that peer: both
// see the other fail with kResourceExhausted and the reason.
//
// Throws CommError: kInvalidArgument, kResourceExhausted (descriptors, memory), kSystem.
TC_API std::unique_ptr<Transport> make_shm_transport(ShmOptions options);

// Throws CommError(kResourceExhausted) where this process cannot make what a pair of ranks shares,
// so that a rank can tell the others before they choose this link.
TC_API void require_segment_memory(ShmOptions options);

// Connections that were no rank of this job, so far.
TC_API uint64_t rejected_connections(const Transport& shm);

}  // namespace torch::comms::transport::shm
