#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torchcomms/base/export.hpp>

// Reports the space for ring files, and why a ring has no file. All files in a folder of
// recorder_directories() together take at most a tenth of its file system. A new file takes at most
// a tenth of what is free there. Orphaned files are removed to make space, the oldest first. If a
// ring still does not fit, the next folder is tried, and after the last one the ring stays in
// memory.
namespace torch::comms::tracing {

// Returns why the ring of this process has no file; "" if it has one, if none is wanted, and before
// record_process().
TC_API std::string in_memory_reason();

// Returns the folders that may hold files of this process's job; empty before record_process().
std::vector<std::string> job_directories();

// The space for ring files in a folder, in bytes.
struct RecorderSpace {
  std::string folder;
  uint64_t ring_bytes = 0;         // the file of one process
  uint64_t max_bytes = 0;          // limit of all files together
  uint64_t available_bytes = 0;    // free in the file system
  uint64_t owned_bytes = 0;        // files of living processes
  uint64_t orphaned_bytes = 0;     // orphaned files, which are removed when space is needed
  uint64_t fitting_rings = 0;      // how many more files fit
  std::string unavailable_reason;  // why none fits; "" if fitting_rings > 0
};

// Returns the space of each folder of recorder_directories().
TC_API std::vector<RecorderSpace> recorder_spaces();

}  // namespace torch::comms::tracing
