#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/handles.hpp"

// Files of rings: made, owned, found without owner, removed. Throws CommError(kSystem or
// kResourceExhausted).
namespace torch::comms::tracing {

struct OwnedFile {
  std::string path;
  base::FileDescriptor lock;   // the owner's, while it is open
  std::span<std::byte> bytes;  // of the file, not in forked children, and never given back
  uint64_t inode = 0;
};

// A file of `size_bytes` zeroes in `folder`/`job`, that nobody else may read, reserved in full: it
// cannot run out of space later. Not visible by its name before publish().
OwnedFile make_file(const std::string& folder, const std::string& job, const std::string& name,
                    size_t size_bytes);
void publish(OwnedFile& file);

// Removes it, and its folder if nothing else is in it.
void remove_file(const std::string& path) noexcept;

// Removes files below `folder` whose owner is gone: those in which every communicator was
// finalized, those older than `oldest_s` (seconds of the wall clock), and the oldest until the
// others are no more than `most_bytes`. What cannot be removed stays.
void reclaim(const std::string& folder, int64_t oldest_s, uint64_t most_bytes) noexcept;

}  // namespace torch::comms::tracing
