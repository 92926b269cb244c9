#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

// Where the files of event rings find room, and why a ring is in memory alone. All files of a
// folder of recorder_directories() together take at most a tenth of its file system, and a new one
// a tenth of what is free there: files without owner make room, the oldest first. Where a ring
// still does not fit, the next folder is taken, and after the last one memory.
namespace torch::comms::tracing {

// Why the ring of this process has no file; "" where it has one, before record_process(), and where
// no file is wanted.
TC_API std::string in_memory_reason();

// Where the files of this process's job may be; empty before record_process().
std::vector<std::string> job_directories();

// What there is room for in a folder, in bytes.
struct RecorderSpace {
  std::string folder;
  uint64_t ring_bytes = 0;         // what the file of one process takes
  uint64_t max_bytes = 0;          // what all files together may take
  uint64_t available_bytes = 0;    // what the file system has left
  uint64_t owned_bytes = 0;        // files of processes that live
  uint64_t orphaned_bytes = 0;     // files whose owner is gone: they make room
  uint64_t fitting_rings = 0;      // how many more processes find room
  std::string unavailable_reason;  // why none does; "" where more_rings > 0
};

// Of each folder of recorder_directories().
TC_API std::vector<RecorderSpace> recorder_spaces();

}  // namespace torch::comms::tracing
