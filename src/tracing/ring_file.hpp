#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/os/handles.hpp"

// Files of rings: made, owned, counted, found without owner, removed. Throws CommError(kSystem or
// kResourceExhausted).
namespace torch::comms::tracing {

struct OwnedRingFile {
  std::string path;
  base::FileDescriptor lock;   // the owner's, while it is open
  std::span<std::byte> bytes;  // of the file, not in forked children, and never given back
  uint64_t inode = 0;
};

// A file of `size_bytes` zeroes in `folder`/`job`, that nobody else may read, reserved in full: it
// cannot run out of space later. Not visible by its name before publish_result().
OwnedRingFile create_ring_file(const std::string& folder, const std::string& job,
                               const std::string& name, size_t size_bytes);
void publish(OwnedRingFile& file);

// Removes it, and its folder if nothing else is in it.
void remove_file(const std::string& path) noexcept;

// What the files of all jobs below a folder take, and what they may. In bytes.
struct RingFileQuota {
  uint64_t max_bytes = 0;        // for all files together: a tenth of their file system
  uint64_t available_bytes = 0;  // what the file system has left for this user
  uint64_t owned_bytes = 0;      // files of processes that live
  uint64_t orphaned_bytes = 0;   // files whose owner is gone: they make room for new ones

  // How many more files of `size_bytes` fit. A new file takes at most a tenth of what is available.
  uint64_t fitting_files(uint64_t size_bytes) const noexcept;
  // What may be left when one of `size_bytes` is made.
  uint64_t max_orphaned_bytes(uint64_t size_bytes) const noexcept;
  // Why none of `size_bytes` fits; "" where one does.
  std::string full_reason(uint64_t size_bytes) const;
};
// Of a folder that need not be there yet.
RingFileQuota quota_of(const std::string& folder);

// Makes the folder where it is not there, and locks it. A process holds the lock from counting the
// files to making its own, so that all together stay within the quota. Blocks: a second at most.
// Throws CommError(kSystem) where another process holds it longer.
base::FileDescriptor lock_folder(const std::string& folder);
// remove_orphaned_files(), and as many more files without owner, the oldest first, as one of
// `size_bytes` needs. Throws CommError(kResourceExhausted) where it still does not fit. With
// lock_folder().
void make_space(const std::string& folder, int64_t oldest_s, size_t size_bytes);

// Removes files below `folder` whose owner is gone: those in which every communicator was
// finalized, those older than `oldest_s` (seconds of the wall clock), and the oldest until the
// others are no more than `most_bytes`. What cannot be removed stays.
void remove_orphaned_files(const std::string& folder, int64_t oldest_s,
                           uint64_t most_bytes) noexcept;

}  // namespace torch::comms::tracing
