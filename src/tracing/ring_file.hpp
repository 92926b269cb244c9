#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/os/handles.hpp"

// Creating, locking, counting and removing of ring files.
// Throws: CommError(kSystem or kResourceExhausted).
namespace torch::comms::tracing {

// A ring file of this process.
struct OwnedRingFile {
  std::string path;
  base::FileDescriptor lock;   // held by the owner while it lives
  std::span<std::byte> bytes;  // mapping of the file; not inherited by forks, never unmapped
  uint64_t inode = 0;
};

// Creates a file of `size_bytes` zeroes in `folder`/`job` that only this user may read. The space
// is reserved in full, so that writes cannot fail later. The file has its name only after
// publish().
OwnedRingFile create_ring_file(const std::string& folder, const std::string& job,
                               const std::string& name, size_t size_bytes);
// Gives the file its name.
void publish(OwnedRingFile& file);

// Removes the file, and its folder if that is then empty.
void remove_file(const std::string& path) noexcept;

// The space that the ring files of all jobs below a folder take, and their limits, in bytes.
struct RingFileQuota {
  uint64_t max_bytes = 0;        // for all files together: a tenth of the file system
  uint64_t available_bytes = 0;  // free in the file system for this user
  uint64_t owned_bytes = 0;      // files of living processes
  uint64_t orphaned_bytes = 0;   // orphaned files, which are removed when space is needed

  // Returns how many more files of `size_bytes` fit. A new file takes at most a tenth of the
  // available space.
  uint64_t fitting_files(uint64_t size_bytes) const noexcept;
  // Returns how much may stay orphaned when a file of `size_bytes` is made.
  uint64_t max_orphaned_bytes(uint64_t size_bytes) const noexcept;
  // Returns why no file of `size_bytes` fits; "" if one does.
  std::string full_reason(uint64_t size_bytes) const;
};
// Reads the quota of a folder, which need not exist yet.
RingFileQuota quota_of(const std::string& folder);

// Makes the folder if needed and locks it. A process holds the lock from counting the files until
// it has made its own, so that all stay within the quota.
// Blocks: at most 1 s.
// Throws: CommError(kSystem) if another process holds the lock longer.
base::FileDescriptor lock_folder(const std::string& folder);
// Removes orphaned files as remove_orphaned_files() does, and as many more, the oldest first, as a
// file of `size_bytes` needs. Call it with lock_folder() held.
// Throws: CommError(kResourceExhausted) if the file still does not fit.
void make_space(const std::string& folder, int64_t oldest_s, size_t size_bytes);

// Removes orphaned files below `folder`: those in which every communicator was finalized, those
// older than `oldest_s` (wall clock, in seconds), and the oldest beyond `most_bytes`. A file that
// cannot be removed stays.
void remove_orphaned_files(const std::string& folder, int64_t oldest_s,
                           uint64_t most_bytes) noexcept;

}  // namespace torch::comms::tracing
