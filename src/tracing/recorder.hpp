#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "tracing/event_ring.hpp"

// Keeps the event ring of this process in a file, which remains if the process is killed.
//
// The file is <folder>/<job>/<host>-<pid>.ring, with a number before the suffix if that file
// exists. <folder> is TORCHCOMM_RECORDER_DIR; `off` keeps the ring in memory. If it is unset,
// <folder> is torchcomms-<uid> in /dev/shm, or, if that fails, in TMPDIR (default /tmp). <job> is
// equal for the processes of a job: MASTER_ADDR and MASTER_PORT with torchrun's restart count, else
// the pid of their parent.
//
// The owner holds a lock on its file while it lives. At its exit it removes the file if every
// communicator of several ranks was finalized. A process that makes a file removes orphaned ring
// files: those with every communicator finalized, those older than a day, and the oldest beyond
// kMaxOrphanedBytes. It removes more if the new file needs the space: see recorder_space.hpp. If no
// file can be made, a log line says why; that is no error.
namespace torch::comms::tracing {

inline constexpr uint64_t kMaxOrphanedBytes = uint64_t{64} << 20;
inline constexpr const char* kFileSuffix = ".ring";

// Returns the ring of this process; its capacity is TORCHCOMM_EVENTS_CAPACITY, read once.
// Throws: CommError(kInvalidArgument) if that variable is invalid; the error of EventRing.
// Threads: any.
// Lifetime: the ring is never destroyed.
TC_API EventRing& process_ring();

// Makes the file of the ring and moves the ring into it. Only the first call in a process, or in a
// forked child, has an effect, also if no file could be made. `vocabulary`: see RingHeader. Events
// that were recorded before are lost.
// Blocks: up to 1 s for each folder, while other processes make their files.
// Throws: the errors of process_ring().
// Threads: any, but no other thread may be recording an event.
TC_API void record_process(std::string_view vocabulary);

// Calls record_process() and adds the communicator to the ring. The caller must pass the id to
// EventRing::end_communicator() later. Returns: the id, for OpRecord::comm.
TC_API uint32_t record_communicator(const CommunicatorInfo& communicator,
                                    std::string_view vocabulary);

// Returns the folders to try, in order; none if TORCHCOMM_RECORDER_DIR is `off`.
TC_API std::vector<std::string> recorder_directories();
// Returns the ring file of this process; "" if it has none.
TC_API std::string recorder_file();

}  // namespace torch::comms::tracing
