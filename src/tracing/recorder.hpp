#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <torchcomms/base/export.hpp>

#include "tracing/event_ring.hpp"

// The event ring of this process, and the file that it lies in, which outlives a killed process.
//
// The file is <folder>/<job>/<host>-<pid>.ring. <folder> is TORCHCOMM_RECORDER_DIR, else
// torchcomms-<uid> in /dev/shm, else in the temporary folder; `off` keeps the ring in memory. <job>
// is what the processes of one job have in common: MASTER_ADDR and MASTER_PORT, else their parent.
// The owner holds a lock on its file while it lives, and takes it along at its exit where every
// communicator was finalized. Whoever makes one removes those without owner in which that is so
// too, that are older than a day, or more than kMaxOrphanedBytes, the oldest first. A file that
// cannot be had is logged once, and fails nothing.
namespace torch::comms::tracing {

inline constexpr uint64_t kMaxOrphanedBytes = uint64_t{64} << 20;
inline constexpr const char* kFileSuffix = ".ring";

// The ring of this process; its capacity is TORCHCOMM_EVENTS_CAPACITY, read once. Never destroyed.
TC_API EventRing& process_ring();

// Gives the ring its file, in a forked child again; does nothing where it has one. `vocabulary`:
// for RingHeader.
TC_API void record_process(std::string_view vocabulary);

// Takes a communicator into it, after record_process().
TC_API uint32_t record_communicator(const CommunicatorInfo& communicator,
                                    std::string_view vocabulary);

// Where the files are looked for, the first that works.
TC_API std::vector<std::string> recorder_directories();
// The file of this process; "" where there is none.
TC_API std::string recorder_file();

}  // namespace torch::comms::tracing
