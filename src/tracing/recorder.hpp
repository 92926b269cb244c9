#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "tracing/event_ring.hpp"

// The event ring of this process and its file, which outlives a killed process.
//
// The file is <folder>/<job>/<host>-<pid>.ring. <folder> is TORCHCOMM_RECORDER_DIR, else
// torchcomms-<uid> in /dev/shm, else in the temporary folder; `off` keeps the ring in memory. <job>
// is what the processes of a job have in common: MASTER_ADDR and MASTER_PORT, else their parent.
//
// The owner holds a lock on its file while it lives. At its exit it removes the file if every
// communicator was finalized. A process that makes a file removes orphaned ring files: those with
// every communicator finalized, those older than a day, and the oldest beyond kMaxOrphanedBytes. If
// no file can be made, that is logged once and is no error.
namespace torch::comms::tracing {

inline constexpr uint64_t kMaxOrphanedBytes = uint64_t{64} << 20;
inline constexpr const char* kFileSuffix = ".ring";

// Returns the ring of this process; its capacity is TORCHCOMM_EVENTS_CAPACITY, read once. It is
// never destroyed.
TC_API EventRing& process_ring();

// Gives the ring its file, in a forked child again; does nothing if it has one. `vocabulary`: for
// RingHeader.
TC_API void record_process(std::string_view vocabulary);

// Calls record_process() and adds the communicator to the ring. Returns: its id, for
// OpRecord::comm.
TC_API uint32_t record_communicator(const CommunicatorInfo& communicator,
                                    std::string_view vocabulary);

// Returns the folders to try, in order.
TC_API std::vector<std::string> recorder_directories();
// Returns the ring file of this process; "" if it has none.
TC_API std::string recorder_file();

}  // namespace torch::comms::tracing
